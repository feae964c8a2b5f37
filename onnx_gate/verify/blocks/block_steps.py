"""Steps of cases block by block: PyTorch's inputs at each, and how its other runs go through them.

The steps of PyTorch are known before the first block is judged: each is one more case on PyTorch's own
values, and blocks are loaded once for all of them. What a runtime makes of its own outputs takes a way
through all blocks for each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.dimensions import names_of, size_of
from onnx_gate.runtimes.base import Array, Outputs
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.blocks.together import TogetherReference
from onnx_gate.verify.blocks.torch_side import TorchSide
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.prepare import Prepared
from onnx_gate.verify.steps.course import is_stepped
from onnx_gate.verify.steps.feedback import Arrays, Feedback, feedback_of
from onnx_gate.verify.steps.trajectory import STRIDE, Trajectory
from onnx_gate.verify.stopwatch import Clock


@dataclass
class CaseSteps:
    """A case, and with ``feedback`` its later steps, with PyTorch's inputs of each."""

    cases: list[Case]
    feedback: Feedback | None = None


def steps_of(spec: ModelSpec, outputs: Sequence[str], cases: Iterable[Case]) -> list[CaseSteps]:
    """Return all cases, with how those go on that are stepped; ``outputs`` are the names of the model's."""
    walked: set[str] = set()
    made = []
    for case in cases:
        feedback = None
        if spec.steps is not None and is_stepped(case, walked):
            walked.add(case.id)
            feedback = feedback_of(spec, outputs)
        made.append(CaseSteps([case], feedback))
    return made


def go_through(torch: TorchSide, steps: Sequence[CaseSteps]) -> None:
    """Let PyTorch answer every step but the last, and add what it is given at the next.

    Raises ``GateError`` (OG412) where what comes back does not fit.
    """
    going = [(each, Trajectory(each.feedback, each.cases[0])) for each in steps if each.feedback]
    while going:
        answers = torch.answers([each.cases[-1] for each, _ in going])
        going = [
            (each, way)
            for (each, way), said in zip(going, answers, strict=True)
            if isinstance(said, Outputs) and way.advance(said.arrays)
        ]
        for each, way in going:
            further = replace(each.cases[0], arrays=way.arrays, sizes=way.sizes, expected={})
            each.cases.append(further)
        going = [(each, way) for each, way in going if way.number < way.feedback.count]


def expected_sizes(
    spec: ModelSpec, prepared: Prepared, steps: CaseSteps
) -> Iterator[Mapping[str, int]]:
    """Yield how many elements each input has at every step: sizes grow as they do on the example."""
    case = steps.cases[0]
    yield {name: array.size for name, array in case.arrays.items()}
    if steps.feedback is None:
        return
    call, before = prepared.call.outputs, prepared.sizes
    _, after = steps.feedback.after(prepared.example, call.arrays, before)
    for number in range(1, steps.feedback.count):
        sizes = {
            d: s + number * (after[d] - before[d]) for d, s in case.sizes.items() if d in before
        }
        yield {name: _elements(spec, name, array, sizes) for name, array in case.arrays.items()}


def _elements(spec: ModelSpec, name: str, array: Array, sizes: Sizes) -> int:
    count = 1
    for size, dim in zip(array.shape, spec.inputs[name].shape, strict=False):
        count *= size_of(dim, sizes) if set(names_of(dim)) <= sizes.keys() else size
    return count


class MovedSteps:
    """Runs with moved rounding that go their own way from the first step on; ``cases`` are all steps."""

    def __init__(self, torch: TorchSide, feedback: Feedback, cases: Sequence[Case]) -> None:
        self._torch, self._feedback, self._cases = torch, feedback, cases
        self._runs: dict[int, _MovedRun] = {}

    def at(self, number: int, seeds: Sequence[int]) -> list[tuple[Array, ...] | None]:
        """Return what each run says at a step, ``None`` for one that has failed."""
        runs = {seed: self._runs.setdefault(seed, _MovedRun()) for seed in seeds}
        for step in range(1, number + 1):
            case = self._cases[step - 1]
            going = {s: r for s, r in runs.items() if r.number < step and r.answers is not None}
            given = [replace(case, arrays=self._given(case.arrays, r)) for r in going.values()]
            moved = [seed + STRIDE * (step - 1) for seed in going]
            made = self._torch.moved(given, moved) if going else []
            for run, answers in zip(going.values(), made, strict=True):
                run.number, run.answers = step, answers
        return [run.answers for run in runs.values()]

    def _given(self, shared: Arrays, run: _MovedRun) -> Arrays:
        return self._feedback.mine(shared, run.answers) if run.answers else shared


@dataclass
class _MovedRun:
    number: int = 0
    answers: tuple[Array, ...] | None = field(default=())


class StepTogetherReference(TogetherReference):
    """What PyTorch says of one step of a case of a model whose blocks are loaded one at a time."""

    stepped = True

    def __init__(
        self,
        eager: Eager,
        way: Trajectory,
        outputs: Outputs,
        clock: Clock,
        moved: MovedSteps,
        at_once: int,
    ) -> None:
        number = way.number
        super().__init__(
            eager, way.arrays, outputs, clock, lambda seeds: moved.at(number, seeds), at_once
        )
        self._way = way

    def _run_in_float64(self) -> tuple[Array, ...] | None:
        return self._way.other(None, lambda inputs, _: self._float64.run(inputs))

    def _run_moved(self, seed: int) -> tuple[Array, ...] | None:
        # A single run that begins in the middle would not have come all the way.
        return self._made.pop(seed, None)
