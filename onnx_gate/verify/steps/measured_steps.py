"""What the steps of a case come to on one runtime: measured one by one, and one check for each output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.numerics.compare import compare
from onnx_gate.numerics.scaled import rms, scale_error
from onnx_gate.report.model import Check, Steps, Tokens
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.judge.where import Selection
from onnx_gate.verify.reference.answers import CaseAnswers
from onnx_gate.verify.steps.feedback import Feedback, chosen

_DIGITS = 3


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


@dataclass(frozen=True)
class Step:
    """One output at the step ``number``, which counts from 1.

    ``check`` is ``None`` where it has diverged before. ``error`` is the largest difference of the
    two sides on the scale of the output, ``None`` where they could not be compared, ``rounding``
    PyTorch's own from float64, ``max_abs`` the largest difference. ``same`` of ``of`` tokens that
    were chosen from the output are the same.
    """

    number: int
    check: Check | None
    error: float | None = None
    rounding: float | None = None
    max_abs: float = math.inf
    same: int = 0
    of: int = 0


def has_diverged(steps: Sequence[Step]) -> bool:
    """Return whether a step of an output has diverged."""
    return any(step.check is not None and step.check.verdict == "diverged" for step in steps)


def fold(count: int, steps: Sequence[Step]) -> Check:
    """Return one check of all steps of an output: the numbers are those of the decisive one.

    That is the one that diverged, and where none did, the one that used most of its tolerance.
    ``count`` is how many steps there should have been.
    """
    judged = [(step.number, step.check) for step in steps if step.check is not None]
    diverged = has_diverged(steps)
    at, check = judged[-1] if diverged else max(judged, key=lambda each: each[1].budget or 0.0)
    compared = [(step, step.error) for step in steps if step.error is not None]
    return check.model_copy(
        update={
            "reason": f"at step {at} of {count}: {check.reason}" if diverged else check.reason,
            "compared": sum(c.compared for _, c in judged),
            "open": sum(c.open for _, c in judged),
            "causes": tuple(dict.fromkeys(cause for _, c in judged for cause in c.causes)),
            "resolution": next((c.resolution for _, c in judged if c.resolution), None),
            "steps": Steps(
                count=count,
                at=at,
                errors=tuple(_short(error) for _, error in compared),
                rounding=tuple(s.rounding and _short(s.rounding) for s, _ in compared),
                max_abs=max(step.max_abs for step in steps),
                tokens=_tokens(steps),
            ),
        }
    )


def _tokens(steps: Sequence[Step]) -> Tokens | None:
    if not any(step.of for step in steps):
        return None
    return Tokens(
        same=sum(step.same for step in steps),
        of=sum(step.of for step in steps),
        differ_at=next((step.number for step in steps if step.same < step.of), None),
    )


def _short(value: float) -> float:
    """Return a number with three digits, which is what a series is read for."""
    return float(f"{value:.{_DIGITS}g}")
