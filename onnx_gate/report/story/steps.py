"""Calls in a row: how the error went from step to step, in a line. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx_gate.report.model import Check, ModelResult, Steps
from onnx_gate.report.story.summary import failing
from onnx_gate.text import format_int, number, plain

_NAME = 40
_CASE = 80
# Below this an error is no error, and a logarithm shows nothing.
_LEAST, _MOST = 1e-12, 1e3


def shown(model: ModelResult) -> Check | None:
    """Return the check whose steps stand for a model's: the first wrong, or the best measured.

    Of those that pass it is the one of which PyTorch's own rounding is known and that chooses
    tokens, or else the one that ended with the largest error.
    """
    wrong = next((check for check in failing(model) if check.steps is not None), None)
    measured = [check for check, steps in _stepped(model) if steps.errors]
    return wrong or max(measured, key=_weight, default=None)


def sentence(model: ModelResult) -> str:
    """Return the steps of a model in one line, empty where it has none.

    ``16 steps: logits 1.2e-06 at step 1, 3.4e-06 at step 16 (PyTorch's own rounding 2.9e-06); 32 of 32
    tokens the same``
    """
    check = shown(model)
    if check is None or check.steps is None:
        return ""
    steps, output = check.steps, plain(check.output, _NAME)
    parts = [f"{format_int(steps.count)} steps: {output} {_errors(steps, model.against)}".rstrip()]
    if check.verdict == "diverged":
        first = f"first wrong at step {format_int(steps.at)}"
        case, errors = plain(check.case, _CASE), _errors(steps, model.against)
        parts = [f"{format_int(steps.count)} steps: {output} is {first} ({case})"]
        parts += [f"its error {errors}"] if errors else []
    tokens = [s.tokens for _, s in _stepped(model) if s.tokens is not None]
    if tokens:
        same, of = sum(t.same for t in tokens), sum(t.of for t in tokens)
        parts.append(f"{format_int(same)} of {format_int(of)} tokens the same")
    return "; ".join(parts)


def _stepped(model: ModelResult) -> Iterator[tuple[Check, Steps]]:
    return ((check, check.steps) for check in model.checks if check.steps is not None)


def _weight(check: Check) -> tuple[bool, bool, float]:
    steps = check.steps
    assert steps is not None
    measured = all(each is not None for each in steps.rounding)
    return measured, steps.tokens is not None, _clamped(steps.errors[-1])


def _errors(steps: Steps, against: str) -> str:
    if not steps.errors:
        return ""
    last = len(steps.errors)
    shown = [f"{number(steps.errors[0])} at step 1"]
    if last > 1:
        shown.append(f"{number(steps.errors[-1])} at step {last}")
    own = steps.rounding[-1] if steps.rounding else None
    return ", ".join(shown) + (
        f" ({against}'s own rounding {number(own)})" if own is not None else ""
    )


def _clamped(value: float) -> float:
    return _MOST if math.isnan(value) else min(max(value, _LEAST), _MOST)
