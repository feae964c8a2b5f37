"""What PyTorch says of a case, with everything that its answers are judged by."""

from __future__ import annotations

import sys

from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.compared import Asked, learn
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.steps.trajectory import StepReference, Trajectory
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.workers import tracebacks


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

    def ask(self, case: Case, trajectory: Trajectory | None = None) -> Asked[CaseReference]:
        """Run the module, and where it refuses its slow path; return what it says.

        ``trajectory`` is the way that led to these inputs, where they are a step of a case. What it
        answers is learned.
        """
        eager, float64, slow, tape = self._eager, self._float64, False, None
        try:
            with self._clock.of("pytorch"):
                outputs = (eager if case.advice else self.watcher).run(case.arrays)
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
