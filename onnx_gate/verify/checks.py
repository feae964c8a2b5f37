"""Every case on every runtime: both sides run, each output is judged."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import (
    DEFAULT_SUITES,
    EdgesSuite,
    ModelSpec,
    RandomSuite,
    RuntimeSpec,
    Suite,
    Tolerance,
)
from onnx_gate.numerics.compare import compare
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check, CheckVerdict, Finding, Form
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal, Session, first_line
from onnx_gate.runtimes.torch_eager import Eager, Outputs
from onnx_gate.verify.build import load_function
from onnx_gate.verify.determinism import disagreement
from onnx_gate.verify.inputs.cases import Case, cases
from onnx_gate.verify.inputs.draw import set_constant_rows
from onnx_gate.verify.judge.criteria import Metric
from onnx_gate.verify.judge.judge import Rules, is_floating, judge
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseOracle
from onnx_gate.verify.sessions import Sessions, answers_of, without_optimisations
from onnx_gate.verify.stopwatch import Clock

STORED = "stored"
# What PyTorch said about the first case is kept for a second look up to this size.
KEPT_BYTES = 64 * 2**20

# What PyTorch says about a case, or why it refuses.
_Said = tuple[CaseOracle | None, Refusal | None]


@dataclass
class Checker:
    """Runs one exported model against its module; ``findings`` grows as it does."""

    spec: ModelSpec
    eager: Eager
    path: Path
    graph_inputs: Mapping[str, str]
    graph_outputs: tuple[str, ...]
    example: Mapping[str, int]
    workspace: Path
    patterns: tuple[str, ...]
    threads: int
    findings: list[Finding] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self._wide = Float64Reference(self.eager)
        self._usual: dict[str, float] = {}
        self._metrics: dict[str, Metric] = {}
        self._eps = _widest_eps(self.eager.module)
        self._slow = self.eager.without_fast_path()
        self._slow_wide = Float64Reference(self._slow or self.eager)

    def run(self) -> tuple[Check, ...]:
        """Try every case of the model's suites; raises ``GateError`` as suites and runtimes do."""
        chosen = cases(self.spec, self.example, self.workspace, self.patterns)
        plain = without_optimisations(self.spec.runtimes)
        with self._sessions(self.spec.runtimes) as sessions:
            checks: list[Check] = []
            first: tuple[Case, _Said | None] | None = None
            for case in chosen:
                said = self._ask(case, self.eager, self._wide)
                if first is None:
                    first = case, said if _bytes(said) <= KEPT_BYTES else None
                checks += self._case(case, said, sessions)
        if plain is not None and first is not None:
            checks += self._once_without(plain, *first)
        return tuple(checks)

    def again(self, check: Check) -> tuple[Case, int, RuntimeSpec] | None:
        """Return the case, the output's place and the runtime of a check that this made.

        ``None`` where it cannot be told any more, as for values that a suite draws anew.
        """
        plain = without_optimisations(self.spec.runtimes)
        known = (*self.spec.runtimes, *([plain] if plain is not None else ()))
        runtime = next((spec for spec in known if spec.label == check.runtime), None)
        pattern = (glob.escape(check.case),)
        for case in cases(self.spec, self.example, self.workspace, pattern):
            if case.id == check.case and runtime is not None:
                names = self._named(self.eager.run(case.arrays)).names
                place = names.index(check.output) if check.output in names else 0
                if self._order(names)[place] == place:
                    return case, place, runtime
        return None

    def advice_as_data(self) -> dict[str, Any]:
        """Try what many correct models promise nothing about; nothing here fails a model.

        Returns ``{"checks": [...], "findings": [...]}`` as JSON data.
        """
        checks: list[Check] = []
        chosen = cases(self.spec, self.example, self.workspace, self.patterns, advice=True)
        with self._sessions(self.spec.runtimes[:1]) as sessions:
            for case in chosen:
                said = self._ask(case, self.eager, self._wide)
                checks += self._case(case, said, sessions)
        return {
            "checks": [to_message(check) for check in checks],
            "findings": [
                to_message(
                    codes.OG403.finding(f"{check.case}, output {check.output}: {check.reason}")
                )
                for check in checks
                if check.verdict == "diverged"
            ],
        }

    def _once_without(self, plain: RuntimeSpec, case: Case, said: _Said | None) -> list[Check]:
        """Run one case with the optimisations off: some faults show at one level only."""
        said = said or self._ask(case, self.eager, self._wide)
        try:
            with self._sessions((plain,)) as sessions:
                return list(self._case(replace(case, expected={}), said, sessions))
        except GateError as error:
            self.findings.append(
                codes.OG304.finding(
                    f"not run with optimisations off: {error.message}",
                )
            )
            return []

    def _case(self, case: Case, said: _Said, sessions: Mapping[str, Session]) -> Iterator[Check]:
        oracle, refusal = said
        if oracle is not None and case.expected:
            yield from self._stored(case, oracle)
        for label, session in sessions.items():
            answers, refused = self._answers(session, case)
            checks = self._compare(case, label, oracle, refusal, answers, refused)
            if self._slow is not None and any(c.verdict == "diverged" for c in checks):
                checks = self._second_opinion(case, label, oracle, answers, refused, checks)
            yield from self._forgive_masks(case, label, session, checks)
        if oracle is not None and not case.advice and not self._is_edge(case):
            self._remember(oracle.outputs)

    def _ask(self, case: Case, eager: Eager, wide: Float64Reference) -> _Said:
        """Run the module; return what it says, or why it refuses."""
        try:
            with self.clock.of("pytorch"):
                outputs = self._named(eager.run(case.arrays))
        except Refusal as error:
            return None, error
        oracle = CaseOracle(eager, wide, case.arrays, outputs, self._is_edge(case), self.clock)
        return oracle, None

    def _answers(self, session: Session, case: Case) -> tuple[list[Array] | None, Refusal | None]:
        with self.clock.of("runtime"):
            return answers_of(session, case.arrays, self.graph_inputs)

    def _sessions(self, runtimes: Sequence[RuntimeSpec]) -> Sessions:
        return Sessions(self.path, runtimes, self.threads, self.clock)

    def _second_opinion(
        self,
        case: Case,
        label: str,
        first: CaseOracle | None,
        answers: list[Array] | None,
        refused: Refusal | None,
        checks: list[Check],
    ) -> list[Check]:
        """Ask PyTorch again with the fast path of attention off: it may disagree with itself."""
        assert self._slow is not None
        slow, refusal = self._ask(case, self._slow, self._slow_wide)
        again = self._compare(case, label, slow, refusal, answers, refused)
        if not any(c.verdict == "diverged" for c in again):
            return again
        undecided = (first is None) != (slow is None) or (
            first is not None and slow is not None and disagreement(first.outputs, slow.outputs)
        )
        if undecided and self._by_chance(case):
            reason = "PyTorch answers otherwise with the fast path of attention on and off; "
            return [
                c.model_copy(update={"advice": True, "reason": reason + c.reason})
                if c.verdict == "diverged"
                else c
                for c in again
            ]
        return checks

    def _forgive_masks(
        self, case: Case, label: str, session: Session, checks: list[Check]
    ) -> list[Check]:
        """Take divergences for advice that are gone once no row of a mask is alike from end to end.

        Attention over nothing has no meaning: PyTorch's scaled_dot_product_attention answers 0,
        a softmax over equal numbers answers the mean, and models do not say which they want. NaN
        where PyTorch has a number is no matter of taste, and stays.
        """
        wrong = [c for c in checks if c.verdict == "diverged" and not c.advice]
        if (
            not self._by_chance(case)
            or not wrong
            or any(c.metrics is None or c.metrics.nonfinite for c in wrong)
        ):
            return checks
        if not any(self._agrees_with_rows(case, label, session, v) for v in (True, False)):
            return checks
        self.findings.append(
            codes.OG403.finding(
                f"{case.id}: PyTorch and {label} agree unless a row of a mask is alike from end "
                "to end; name the suite in the manifest where such rows occur",
            )
        )
        return [c.model_copy(update={"advice": True}) if c in wrong else c for c in checks]

    def _agrees_with_rows(self, case: Case, label: str, session: Session, value: bool) -> bool:
        turned = set_constant_rows(case.arrays, self.spec.inputs, value)
        if turned is None:
            return False
        other = replace(case, arrays=turned, expected={})
        oracle, refusal = self._ask(other, self.eager, self._wide)
        answers, refused = self._answers(session, other)
        checks = self._compare(other, label, oracle, refusal, answers, refused)
        return oracle is not None and all(c.verdict == "pass" for c in checks)

    def _compare(
        self,
        case: Case,
        label: str,
        oracle: CaseOracle | None,
        refusal: Refusal | None,
        answers: list[Array] | None,
        refused: Refusal | None,
    ) -> list[Check]:
        if answers is None:
            if oracle is None:
                reason = f"both refuse; PyTorch: {refusal}; {label}: {refused}"
                return [_check(case, label, "*", "refused", reason, refusal, refused)]
            reason = f"{label} refuses: {refused}"
            return [_check(case, label, "*", "diverged", reason, refusal, refused)]
        if oracle is None:
            reason = f"PyTorch refuses ({refusal}) and {label} answers"
            if case.advice:
                return [_check(case, label, "*", "refused", reason, refusal, refused)]
            check = _check(case, label, "*", "diverged", reason, refusal, refused)
            # A size or value that nobody asked for need not be one that the model is made for.
            asked = case.named and case.sized
            return [check if asked else check.model_copy(update={"advice": True})]
        expected = oracle.outputs
        if len(answers) != len(expected.arrays):
            names = ", ".join(expected.names)
            reason = f"{len(answers)} outputs where PyTorch has {len(expected.arrays)} ({names})"
            return [_check(case, label, "*", "diverged", reason, form="number")]
        return [
            self._judge(case, label, oracle, index, answers[place])
            for index, place in enumerate(self._order(expected.names))
        ]

    def _judge(
        self, case: Case, label: str, oracle: CaseOracle, index: int, candidate: Array
    ) -> Check:
        name = oracle.outputs.names[index]
        rules = self._rules(name, candidate.dtype)
        try:
            with self.clock.of("compare"):
                found = judge(
                    candidate,
                    oracle.outputs.arrays[index],
                    rules,
                    self._usual.get(name, 0.0),
                    oracle.output(index),
                )
        except (ValueError, TypeError) as error:
            raise codes.OG405.error(
                f"{case.id}: the tolerance of {name} cannot be applied: {first_line(error)}",
            ) from error
        verdict: CheckVerdict = "pass" if found.holds else "diverged"
        # Constant inputs through normalisations are noise alone, in PyTorch as much as in ONNX.
        meaningless = found.unsteady and not found.holds and not case.named and self._is_edge(case)
        if (found.ill_conditioned or meaningless) and not case.advice:
            self.findings.append(
                codes.OG401.finding(
                    f"{name} is ill-conditioned on {case.id}: rounding moves PyTorch's own "
                    "answer by a visible part of the output's scale, so faults of that size cannot "
                    "be seen there",
                )
            )
        return _check(case, label, name, verdict, found.reason).model_copy(
            update={
                "advice": case.advice or meaningless,
                "budget": found.budget,
                "tolerance": found.tolerance,
                "metrics": found.metrics,
                "worst": found.worst,
                "form": found.form,
            }
        )

    def _stored(self, case: Case, oracle: CaseOracle) -> Iterator[Check]:
        """Compare the outputs that a file of inputs holds with what PyTorch says now."""
        names = oracle.outputs.names
        for key, array in case.expected.items():
            if key in names:
                index = names.index(key)
            elif key.isdigit() and int(key) < len(names):
                index = int(key)
            else:
                raise codes.OG108.error(
                    f"{case.id}: the stored output_{key} is none of the model's outputs: "
                    f"{', '.join(names)}",
                )
            yield self._judge(case, STORED, oracle, index, array)

    def _named(self, outputs: Outputs) -> Outputs:
        """Give the outputs the manifest's names, in order."""
        declared = self.spec.outputs
        if declared is None or set(declared) == set(outputs.names):
            return outputs
        if len(declared) != len(outputs.names):
            raise codes.OG115.error(
                f"the manifest names {len(declared)} outputs ({', '.join(declared)}) and the model "
                f"returns {len(outputs.names)}: {', '.join(outputs.names)}",
            )
        return replace(outputs, names=tuple(declared))

    def _order(self, names: tuple[str, ...]) -> list[int]:
        """Return, for each output of the model, its place among the graph's.

        By name where the manifest names them and the graph has the same names in another order,
        which is a finding; by place otherwise.
        """
        places = list(range(len(names)))
        declared = self.spec.outputs
        if declared is None or tuple(self.graph_outputs) == names:
            return places
        if set(self.graph_outputs) == set(names):
            self._note_outputs(
                f"in the order {', '.join(self.graph_outputs)}, PyTorch returns", names
            )
            return [self.graph_outputs.index(name) for name in names]
        self._note_outputs(f"called {', '.join(self.graph_outputs)}, the manifest says", names)
        return places

    def _note_outputs(self, text: str, names: tuple[str, ...]) -> None:
        self.findings.append(
            codes.OG115.finding(
                f"the graph's outputs are {text} {', '.join(names)}: whoever reads them by "
                "name or by place gets something else",
            )
        )

    def _rules(self, name: str, dtype: np.dtype[np.generic]) -> Rules:
        own = (self.spec.outputs or {}).get(name)
        tolerance = own or self.spec.tolerance
        if own is None and not is_floating(dtype):
            tolerance = Tolerance(auto=tolerance.auto, indices=tolerance.indices)
        return Rules(
            tolerance=tolerance,
            own_tolerance=own is not None,
            metric=self._metric(tolerance.metric),
            eps=self._eps,
            threads=self.threads,
        )

    def _metric(self, reference: str | None) -> Metric | None:
        if reference is None:
            return None
        if reference not in self._metrics:
            function = load_function(
                reference, self.workspace, f"models.{self.spec.name}.tolerance"
            )

            def metric(expected: Array, actual: Array) -> float:
                try:
                    return float(function(expected.copy(), actual.copy()))
                except Exception as error:
                    raise codes.OG405.error(
                        f"the metric {reference} raised {type(error).__name__}: {first_line(error)}",
                    ) from error

            self._metrics[reference] = metric
        return self._metrics[reference]

    def _suite(self, case: Case) -> Suite | None:
        return self.spec.suites.get(case.suite) or DEFAULT_SUITES.get(case.suite)

    def _is_edge(self, case: Case) -> bool:
        return isinstance(self._suite(case), EdgesSuite)

    def _by_chance(self, case: Case) -> bool:
        """Return whether nobody chose the values of a case: drawn ones, and the default edges."""
        return not case.named or isinstance(self._suite(case), RandomSuite)

    def _remember(self, outputs: Outputs) -> None:
        """Keep the usual scale of each output, of cases that are not at an edge."""
        for name, array in zip(outputs.names, outputs.arrays, strict=True):
            if is_floating(array.dtype) and array.size:
                scale = compare(array, array).expected_rms
                if np.isfinite(scale):
                    self._usual[name] = max(self._usual.get(name, 0.0), scale)


def _check(
    case: Case,
    runtime: str,
    output: str,
    verdict: CheckVerdict,
    reason: str,
    torch_refuses: Refusal | None = None,
    runtime_refuses: Refusal | None = None,
    form: Form | None = None,
) -> Check:
    return Check(
        runtime=runtime,
        suite=case.suite,
        case=case.id,
        output=output,
        verdict=verdict,
        advice=case.advice,
        reason=reason,
        edge=case.edge,
        refused=(
            *(("pytorch",) if torch_refuses else ()),
            *(("runtime",) if runtime_refuses else ()),
        ),
        refusal=dict(runtime_refuses.data) if runtime_refuses else {},
        form=form,
    )


def _bytes(said: _Said) -> int:
    return sum(array.nbytes for array in said[0].outputs.arrays) if said[0] is not None else 0


def _widest_eps(module: torch.nn.Module) -> float:
    """Return eps of the widest floating-point dtype among the weights, 0 without any."""
    found = [
        torch.finfo(t.dtype).eps
        for _, t in state.tensors(module)
        if t.is_floating_point() and t.dtype.itemsize > 1
    ]
    return min(found, default=0.0)
