"""What the steps of a case come to on one runtime: measured one by one, and one check for each output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.numerics.compare import compare
from onnx_gate.numerics.scaled import rms, scale_error
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.judge.where import Selection
from onnx_gate.verify.reference.answers import CaseAnswers
from onnx_gate.verify.steps.feedback import Feedback, chosen
from onnx_gate.verify.steps.fold import Step, fold, has_diverged


@dataclass
class StepRows:
    """The steps of each output of a case, which begins at ``sizes``.

    With ``measure`` PyTorch's own rounding is found out at every step, whether a verdict needs it or not.
    """

    feedback: Feedback
    sizes: Sizes
    measure: bool
    steps: dict[str, list[Step]] = field(default_factory=dict)

    @property
    def settled(self) -> frozenset[str]:
        """The outputs that have diverged: these are measured, and judged no more."""
        return frozenset(name for name, steps in self.steps.items() if has_diverged(steps))

    def take(
        self,
        number: int,
        checks: Sequence[Check],
        reference: CaseAnswers,
        answers: Sequence[Array] | None,
        selected: Sequence[Selection | None],
    ) -> bool:
        """Take in a step: its ``checks``, and the runtime's ``answers`` in PyTorch's order.

        ``selected`` are the positions that are judged, of each output. A runtime goes no further where
        it has no answers, or some of another form: then this returns false.
        """
        rows: dict[str, Step] = {c.output: Step(number, c) for c in checks}
        outputs = reference.outputs
        goes_on = answers is not None and all(map(_alike, answers, outputs.arrays))
        if answers is not None and goes_on:
            rows |= {
                name: self._measured(
                    number, rows.get(name), index, reference, answers[index], selected[index]
                )
                for index, name in enumerate(outputs.names)
            }
        for name, step in rows.items():
            self.steps.setdefault(name, []).append(step)
        return goes_on

    def checks(self) -> Iterator[Check]:
        """Yield one check for each output."""
        for steps in self.steps.values():
            yield fold(self.feedback.count, steps).model_copy(update={"sizes": self.sizes})

    def _measured(
        self,
        number: int,
        step: Step | None,
        index: int,
        reference: CaseAnswers,
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
        if self.measure and rounding is None and check is not None and "auto" in check.tolerance:
            wide = reference.output(index).float64()
            rounding = None if wide is None else scale_error(judged(expected), judged(wide))
        same = of = 0
        for link in self.feedback.chosen:
            rank = len(self.feedback.inputs[link.input].shape)
            if link.index == index:
                pair = chosen(expected, rank), chosen(actual, rank)
                if pair[0] is not None and pair[1] is not None:
                    same, of = int(np.sum(pair[0] == pair[1])), pair[0].size
        return Step(
            number,
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
