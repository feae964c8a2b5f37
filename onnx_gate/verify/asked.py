"""What PyTorch says of a case, with everything that its answers are judged by."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.compared import Asked, learn
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.key_hash import KeyHash
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference, SaidOfCase
from onnx_gate.verify.steps.trajectory import StepReference, Trajectory
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.workers import tracebacks


@dataclass(frozen=True)
class ToldCase:
    """What a fork of this process was told of one case; ``watched`` is all that its watcher knew then."""

    inputs: str
    outputs: Outputs
    watched: Mapping[str, Any]
    said: SaidOfCase


class Ahead:
    """What a fork was told before this process asks: of the first cases, in their order.

    ``suspects`` are the weights that may be without effect, ``None`` where the fork has not come to that.
    """

    def __init__(
        self, told: Iterable[ToldCase] = (), suspects: Sequence[str] | None = None
    ) -> None:
        self._told = {each.inputs: each for each in told}
        self.suspects = suspects

    def of(self, inputs: Mapping[str, Array]) -> ToldCase | None:
        """Return what the fork was told of these inputs, ``None`` from the first on that it was not asked.

        What its watcher knew by then is what one of this process would have been shown so far.
        """
        told = self._told.get(digest(inputs)) if self._told else None
        if told is None:
            self._told.clear()
        return told


def digest(inputs: Mapping[str, Array]) -> str:
    """Return what tells these inputs from all others."""
    hashed = KeyHash()
    for item in sorted(inputs.items()):
        hashed.add(*item)
    return hashed.hex


class AskedModule:
    """The module as the side that is asked first; ``experience`` grows with each of its answers.

    So does what ``watcher`` has seen.
    """

    def __init__(
        self,
        spec: ModelSpec,
        eager: Eager,
        clock: Clock,
        experience: dict[str, Experience],
        watcher: Watcher | None = None,
    ) -> None:
        self._spec, self._eager, self._clock = spec, eager, clock
        self._experience = experience
        self.watcher = watcher or Watcher(eager)
        self._float64 = Float64Reference(eager)
        self._slow = eager.without_fast_path()
        self._refusals: set[str] = set()

    def ask(
        self, case: Case, trajectory: Trajectory | None = None, told: ToldCase | None = None
    ) -> Asked[CaseReference]:
        """Run the module, and where it refuses its slow path; return what it says.

        ``trajectory`` is the way that led to these inputs, where they are a step of a case. ``told`` is
        what it has said of them to a fork. What it answers is learned.
        """
        eager, float64, slow, tape = self._eager, self._float64, False, None
        try:
            if told is None:
                with self._clock.of("pytorch"):
                    outputs = (eager if case.advice else self.watcher).run(case.arrays)
            else:
                outputs = told.outputs
                self.watcher.take_over(told.watched)
            tape = None if case.advice else self.watcher.recorded()
        except Refusal as refusal:
            if self._slow is None:
                return self._refused(case, refusal)
            try:
                outputs = self._slow.run(case.arrays)
            except Refusal:
                return self._refused(case, refusal)
            eager, float64, slow = self._slow, Float64Reference(self._slow), True
        reference = (
            CaseReference(eager, float64, case.arrays, outputs, self._clock, tape)
            if trajectory is None
            else StepReference(trajectory, eager, float64, outputs, self._clock)
        )
        if told is not None:
            reference.said = told.said
        with self._clock.of("compare"):
            selected = tuple(
                selection(self._spec, name, array.shape, case.arrays, case.sizes, case.id)
                for name, array in zip(outputs.names, outputs.arrays, strict=True)
            )
            for name in outputs.names:
                self._experience.setdefault(name, Experience())
            if not case.advice:
                learn(self._experience, outputs, selected)
        return Asked(reference, None, slow, selected)

    def _refused(self, case: Case, refusal: Refusal) -> Asked[CaseReference]:
        """Keep where an exception of ``forward`` comes from: once for each, in the model's log."""
        if str(refusal) not in self._refusals:
            self._refusals.add(str(refusal))
            print(f"{case.id}: {self._spec.against} refuses", file=sys.stderr)
            tracebacks.write(refusal)
        return Asked(None, refusal)
