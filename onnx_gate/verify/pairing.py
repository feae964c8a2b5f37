"""Which output of the graph is which of PyTorch's, and what each of them is judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, Tolerance
from onnx_gate.manifest.nesting import above, below, name_in_file
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.verify.judge.criteria import Metric
from onnx_gate.verify.judge.judgement import Rules, is_floating
from onnx_gate.verify.sessions import without_optimisations


def order_of(
    outputs: tuple[str, ...], graph: tuple[str, ...], spec: ModelSpec
) -> tuple[list[int], Finding | None]:
    """Return, for each output of the model, its index among the graph's, and a finding.

    By name where the manifest names them, or they are a file's, and the graph has the same names in
    another order, which is a finding; by position otherwise.
    """
    names = tuple(name_in_file(name, spec.inputs) for name in outputs)
    positions = list(range(len(names)))
    declared = (*(spec.outputs or ()), *(outputs if spec.reference is not None else ()))
    own = {name_in_file(name, spec.inputs) for key in declared for name in below(key, outputs)}
    if all(mine == name for mine, name in zip(graph, names, strict=False) if name in own):
        return positions, None
    listed = ", ".join(graph)
    if set(graph) == set(names):
        text = f"in the order {listed}, {spec.against} returns"
        positions = [graph.index(name) for name in names]
    else:
        who = "the manifest" if spec.outputs is not None else spec.against
        text = f"called {listed}, {who} says"
    return positions, codes.OG115.finding(
        f"the graph's outputs are {text} {', '.join(names)}: whoever reads them by name or by "
        "position gets something else"
    )


class RuleBook:
    """The rules of every output of a model: its own tolerance, the runtime's, or the model's."""

    def __init__(self, spec: ModelSpec, workspace: Path, threads: int) -> None:
        self._spec, self._workspace, self.threads = spec, workspace, threads
        self.resolves = True
        self._metrics: dict[str, Metric] = {}
        plain = without_optimisations(spec.runtimes)
        runtimes = (*spec.runtimes, *([plain] if plain is not None else ()))
        self._of_runtimes = {each.label: each.tolerance for each in runtimes}

    def of(self, name: str, dtype: np.dtype[np.generic], runtime: str) -> Rules:
        """Return the rules for the output ``name`` on the runtime of that label."""
        outputs = self._spec.outputs or {}
        own = next((outputs[key] for key in above(name) if key in outputs), None)
        tolerance = own or self._of_runtimes.get(runtime) or self._spec.tolerance
        if own is None and not is_floating(dtype):
            tolerance = Tolerance(auto=tolerance.auto, indices=tolerance.indices)
        return Rules(
            tolerance=tolerance,
            own_tolerance=own is not None,
            metric=self._metric(tolerance.metric),
            threads=self.threads,
            resolves=self.resolves,
            against=self._spec.against,
        )

    def _metric(self, reference: str | None) -> Metric | None:
        if reference is None:
            return None
        if reference not in self._metrics:
            from onnx_gate.verify.build import load_function

            function = load_function(
                reference, self._workspace, f"models.{self._spec.name}.tolerance"
            )

            def metric(expected: Array, actual: Array) -> float:
                try:
                    return float(function(expected.copy(), actual.copy()))
                except Exception as error:
                    raise codes.OG405.error(
                        f"the metric {reference} raised {type(error).__name__}: {first_line(error)}"
                    ) from error

            self._metrics[reference] = metric
        return self._metrics[reference]
