"""One diverged check, and everything needed to run it again: what a diagnosis is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.report.model import Check, Weights
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.reduced import HALF
from onnx_gate.verify.judge.noise import Noise
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import rounded


@dataclass(frozen=True)
class Subject:
    """A diverged check.

    ``arrays`` are the case's inputs by the manifest's names, ``graph_inputs`` maps these to the
    graph's. ``output`` is the diverged output's place, in PyTorch's flat outputs as in the
    graph's. ``folder`` is scratch, ``repro`` takes the reproduction. ``memory`` is how many bytes
    of intermediate values may be held at a time. ``known`` is what PyTorch was asked about the case
    and ``noise`` what rounding does to each element of the output, where they were kept.
    ``reduced``: the file computes in fewer bits. ``weights`` are what those of the file are, where known.
    """

    spec: ModelSpec
    eager: Eager
    exported: Exported
    graph_inputs: Mapping[str, str]
    arrays: Mapping[str, Array]
    output: int
    runtime: RuntimeSpec
    check: Check
    workspace: Path
    folder: Path
    repro: Path
    memory: int
    noise: Noise | None = None
    known: CaseReference | None = None
    reduced: Reduced | None = None
    weights: Weights | None = None

    @property
    def half(self) -> str | None:
        """The dtype of half precision that the file computes in, ``None`` where it does not."""
        return self.reduced.dtype if self.reduced is not None and self.reduced.is_half else None

    @property
    def plain_runtime(self) -> RuntimeSpec:
        """The runtime that diverged, with optimisations off where it has such a level."""
        plain = self.runtime.plain()
        return replace(plain, session_options={}) if plain else self.runtime

    def judged(self, actual: Array, arrays: Mapping[str, Array], expected: Array) -> Array:
        """Return an answer of the diverged output with PyTorch's elements where it is not judged.

        ``arrays`` are the inputs that it answers, ``expected`` is PyTorch's answer to them.
        """
        shape, check = expected.shape, self.check
        if not self.spec.where or actual.shape != shape:
            return actual
        try:
            chosen = selection(self.spec, check.output, shape, arrays, check.sizes, check.case)
        except GateError:  # other inputs than the case's, of which nothing is judged by the mask
            return actual
        return actual if chosen is None else chosen.filled(actual, expected)

    def feeds(self) -> dict[str, Array]:
        """Return the case's inputs by the graph's names, in the dtypes that the graph takes."""
        feeds = {graph: self.arrays[name] for name, graph in self.graph_inputs.items()}
        if self.half is None:
            return feeds
        short = {
            value.name
            for value in self.exported.proto.graph.input
            if value.type.tensor_type.elem_type in HALF
            and HALF[value.type.tensor_type.elem_type] == self.half
        }
        return rounded(feeds, short, self.half)


# Finds the first wrong node of a stage, of which it is said what is wrong, in so many seconds; a diagnosis
# as JSON data.
Locate = Callable[[str, Subject, float], dict[str, Any]]
# What a diagnosis says that was not finished.
NO_CAUSE = "what looks for the cause gave none"
