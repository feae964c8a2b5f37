"""The steps of one output in one check: pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnx_gate.report.model import Check, Steps, Tokens

_DIGITS = 3


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
