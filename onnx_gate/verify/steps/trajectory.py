"""What else PyTorch says of a case, step by step: every other run of the module goes its own way.

Rounding adds up over the steps, on each side its own. So what PyTorch's own error is at a step can
only be told by runs that have come all the way: in float64 from the first step on, and with moved
rounding from the first step on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.steps.feedback import Arrays, Feedback, feedback_of
from onnx_gate.verify.stopwatch import Clock

_Answers = tuple[Array, ...]
# The generators of two runs, and of two steps of one, are never the same.
STRIDE = 1000


class Trajectory:
    """PyTorch's way through the steps of one case (``Way``), which begins at ``case``.

    ``ask`` is how the module is asked about a step of it, where the steps are not asked by somebody else.
    """

    def __init__(
        self,
        feedback: Feedback,
        case: Case,
        ask: Callable[[Case, Trajectory], Asked[CaseReference]] | None = None,
    ) -> None:
        self.feedback, self._ask, self.number = feedback, ask, 1
        self.arrays: Arrays = case.arrays
        self.sizes: Sizes = case.sizes
        self._own = {link.input for link in feedback.own}
        self._shared: list[Arrays] = [case.arrays]
        self._others: dict[int | None, _Run] = {}

    def advance(self, outputs: _Answers) -> bool:
        """Go on to the next step with what PyTorch answered, and return whether there is one.

        Raises ``GateError`` (OG412).
        """
        if self.number == self.feedback.count:
            return False
        self.arrays, self.sizes = self.feedback.after(self.arrays, outputs, self.sizes)
        self.number += 1
        self._shared.append({n: a for n, a in self.arrays.items() if n not in self._own})
        return True

    def ask(self, case: Case) -> Asked[CaseReference]:
        """Return what the module says of this step."""
        assert self._ask is not None
        return self._ask(case, self)

    def other(
        self, seed: int | None, call: Callable[[Arrays, int], _Answers | None]
    ) -> _Answers | None:
        """Return the answers at this step of a run that goes its own way, ``None`` where it fails.

        ``call`` is how it calls the module, with inputs and the number of the step; ``seed`` tells it
        from others.
        """
        run = self._others.setdefault(seed, _Run())
        while run.number < self.number and run.answers is not None:
            inputs = self._shared[run.number]
            if run.number:
                inputs = self.feedback.mine(inputs, run.answers)
            run.number += 1
            run.answers = call(inputs, run.number)
        return run.answers


@dataclass
class _Run:
    """How far another run has come, and what it said there."""

    number: int = 0
    answers: _Answers | None = ()


class StepReference(CaseReference):
    """What PyTorch says of one step of a case."""

    stepped = True

    def __init__(
        self,
        trajectory: Trajectory,
        eager: Eager,
        float64: Float64Reference,
        outputs: Outputs,
        clock: Clock,
    ) -> None:
        super().__init__(eager, float64, trajectory.arrays, outputs, clock)
        self._trajectory = trajectory

    def _run_in_float64(self) -> _Answers | None:
        return self._trajectory.other(None, lambda inputs, _: self._float64.run(inputs))

    def _run_moved(self, seed: int) -> _Answers | None:
        return self._trajectory.other(
            seed, lambda inputs, number: self._moved(inputs, seed + STRIDE * (number - 1))
        )

    def _record(self) -> None:
        """Keep nothing: what rounding does to a step is mostly what it has done to those before."""


def inputs_at(step: int, spec: ModelSpec, eager: Eager, case: Case) -> Arrays:
    """Return PyTorch's inputs at a step of a case, from 1; raises ``Refusal`` as the module does."""
    arrays, sizes = case.arrays, case.sizes
    for _ in range(1, step):
        outputs = eager.run(arrays)
        arrays, sizes = feedback_of(spec, outputs.names).after(arrays, outputs.arrays, sizes)
    return arrays


def steps_answered(spec: ModelSpec, eager: Eager, case: Case, count: int) -> int:
    """Return for how many of ``count`` steps the module answers with finite numbers."""
    return max(islice(steps_of(spec, case, eager.run), count), default=0)


def steps_of(spec: ModelSpec, case: Case, ask: Callable[[Arrays], Outputs]) -> Iterator[int]:
    """Yield the number of each step that is answered with finite numbers, until one is not.

    Beyond the manifest's own no dimension grows to which it gives sizes.
    """
    assert spec.steps is not None
    arrays, sizes = case.arrays, case.sizes
    for number in count(1):
        try:
            outputs = ask(arrays)
        except Refusal:
            return
        if not outputs.finite:
            return
        yield number
        try:
            after = feedback_of(spec, outputs.names).after(arrays, outputs.arrays, sizes)
        except GateError:
            return
        grows = any(after[1].get(dim) != sizes.get(dim) for dim in spec.named_dims)
        if grows and number >= spec.steps.count:
            return
        arrays, sizes = after
