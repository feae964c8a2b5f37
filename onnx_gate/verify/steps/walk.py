"""One case, step by step: who goes on with what, and what each output's steps come to.

PyTorch's outputs go back to PyTorch and the candidate's to the candidate. Each step is judged as a
single call is, but for what PyTorch's own error is after as many steps (``trajectory``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.numerics.compare import compare
from onnx_gate.numerics.scaled import rms, scale_error
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.judge.where import Selection
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.steps.feedback import Arrays, Feedback, chosen, feedback_of
from onnx_gate.verify.steps.fold import Step, fold, has_diverged
from onnx_gate.verify.steps.trajectory import Trajectory

# So many of the default cases are stepped.
UNNAMED = 4


@dataclass
class _Candidate:
    """A runtime on its way: what it is fed next, and each output's steps so far."""

    feeds: Arrays
    steps: dict[str, list[Step]] = field(default_factory=dict)


class StepWalk:
    """The steps of one case, of PyTorch (``trajectory``) and of every runtime beside it.

    With ``measure`` PyTorch's own rounding is found out at every step, whether a verdict needs it or
    not.
    """

    def __init__(
        self,
        feedback: Feedback,
        arrays: Arrays,
        sizes: Sizes,
        labels: Iterable[str],
        *,
        measure: bool,
    ) -> None:
        self.trajectory = Trajectory(feedback, arrays, sizes)
        self._measure, self._sizes = measure, dict(sizes)
        self._candidates = {label: _Candidate(arrays) for label in labels}
        self._answers: dict[str, Sequence[Array]] = {}

    @property
    def feeds(self) -> Mapping[str, Arrays]:
        """The inputs of this step for every runtime that has come so far."""
        return {
            label: candidate.feeds
            for label, candidate in self._candidates.items()
            if self.trajectory.number == 1 or label in self._answers
        }

    def settled(self, label: str) -> frozenset[str]:
        """Return the outputs of a runtime that have diverged: these are measured, and judged no more."""
        return frozenset(
            name for name, steps in self._candidates[label].steps.items() if has_diverged(steps)
        )

    def take(
        self,
        label: str,
        checks: Sequence[Check],
        reference: CaseReference,
        answers: Sequence[Array] | None,
        selected: Sequence[Selection | None],
    ) -> None:
        """Take in a step of a runtime: its ``checks``, and its ``answers`` in PyTorch's order.

        ``selected`` are the positions that are judged, of each output. A runtime goes no further where
        it has no answers, or some of another form.
        """
        self._answers.pop(label, None)
        rows: dict[str, Step] = {c.output: Step(self.trajectory.number, c) for c in checks}
        outputs = reference.outputs
        if answers is not None and all(map(_alike, answers, outputs.arrays)):
            self._answers[label] = answers
            rows |= {
                name: self._measured(
                    rows.get(name), index, reference, answers[index], selected[index]
                )
                for index, name in enumerate(outputs.names)
            }
        for name, step in rows.items():
            self._candidates[label].steps.setdefault(name, []).append(step)

    def advance(self, reference: CaseReference) -> bool:
        """Go on to the next step, and return whether there is one; raises ``GateError`` (OG412)."""
        feedback = self.trajectory.feedback
        if not self._answers or self.trajectory.number == feedback.count:
            return False
        self.trajectory.advance(reference.outputs.arrays)
        for label, answers in self._answers.items():
            self._candidates[label].feeds = feedback.mine(self.trajectory.arrays, answers)
        return True

    def checks(self) -> Iterator[Check]:
        """Yield one check for each output and runtime."""
        for candidate in self._candidates.values():
            for steps in candidate.steps.values():
                check = fold(self.trajectory.feedback.count, steps)
                yield check.model_copy(update={"sizes": self._sizes})

    def _measured(
        self,
        step: Step | None,
        index: int,
        reference: CaseReference,
        actual: Array,
        selected: Selection | None,
    ) -> Step:
        """Add to a step what is drawn: both errors, and whether the same tokens were chosen."""
        check = step.check if step is not None else None
        expected = reference.outputs.arrays[index]
        judged = selected.of if selected is not None else np.asarray
        metrics = check.metrics if check is not None else None
        rounding = metrics.rounding if metrics is not None else None
        if rounding is not None and check is not None and check.worst is not None:
            rounding /= abs(check.worst.expected) + rms(judged(expected)) or 1.0
        if self._measure and rounding is None and check is not None and "auto" in check.tolerance:
            wide = reference.output(index).float64()
            rounding = None if wide is None else scale_error(judged(expected), judged(wide))
        same = of = 0
        for link in self.trajectory.feedback.chosen:
            rank = len(self.trajectory.feedback.inputs[link.input].shape)
            if link.index == index:
                pair = chosen(expected, rank), chosen(actual, rank)
                if pair[0] is not None and pair[1] is not None:
                    same, of = int(np.sum(pair[0] == pair[1])), pair[0].size
        return Step(
            self.trajectory.number,
            check,
            scale_error(judged(actual), judged(expected)),
            rounding,
            _max_abs(judged(actual), judged(expected)),
            same,
            of,
        )


def _max_abs(actual: Array, expected: Array) -> float:
    comparison = compare(actual, expected)
    return math.inf if comparison.nonfinite else comparison.max_abs


def _alike(actual: Array, expected: Array) -> bool:
    return actual.shape == expected.shape and actual.dtype == expected.dtype


def is_stepped(case: Case, walked: Collection[str]) -> bool:
    """Return whether a case is the first step of many; ``walked`` are the ids of those that were.

    Edges show what they show in one call. Of the cases that nobody named a few are enough: the steps
    go through the sizes of a cache by themselves.
    """
    if case.is_edge or case.advice:
        return False
    return case.named or case.id in walked or len(walked) < UNNAMED


def check_steps(spec: ModelSpec, arrays: Arrays, outputs: Outputs, sizes: Sizes) -> None:
    """Raise ``GateError`` (OG412) where the model's ``steps`` do not fit what it returns."""
    if spec.steps is not None:
        feedback_of(spec, outputs.names).after(arrays, outputs.arrays, sizes)


def inputs_at(step: int, spec: ModelSpec, eager: Eager, case: Case) -> Arrays:
    """Return PyTorch's inputs at a step of a case, from 1; raises ``Refusal`` as the module does."""
    arrays, sizes = case.arrays, case.sizes
    for _ in range(1, step):
        outputs = eager.run(arrays)
        arrays, sizes = feedback_of(spec, outputs.names).after(arrays, outputs.arrays, sizes)
    return arrays


def refused_at(
    trajectory: Trajectory,
    case: str,
    refusal: Refusal | None,
    against: str,
    known: Iterable[Finding],
) -> list[Finding]:
    """Return a word on the step that the side refuses that is right, once for a model."""
    if any(codes.OG414.among(known)):
        return []
    number, count = trajectory.number, trajectory.feedback.count
    return [
        codes.OG414.finding(
            f"{against} refuses step {number} of {count} in {case}: {refusal}. What came before it was "
            "compared",
            data={"step": number},
        )
    ]
