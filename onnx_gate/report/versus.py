"""A result against the baseline's, in a word or a factor."""

from __future__ import annotations

import math

from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.summary import error_of, grouped

SAME, NEW, FIXED = "±0", "new", "fixed"
_UP, _DOWN = "🔺", "🔻"


def versus(model: ModelResult, check: Check | None) -> str:
    """Return how a model stands against the baseline, by ``check``, its worst one.

    ``🔺 ×8 000`` is an error that many times the baseline's, ``±0`` the same within 5 %.
    """
    if model.base is None:
        return NEW
    if model.verdict == "pass" and model.base != "pass":
        return FIXED
    if model.error is not None or check is None:
        return SAME if model.base == model.verdict else _was(model.base)
    return versus_check(check)


def versus_check(check: Check) -> str:
    """Return how one check stands against the same check of the baseline."""
    if check.base is None:
        return NEW
    now, before = error_of(check), check.base.max_abs
    if now is None or before is None:
        return SAME if check.base.verdict == check.verdict else _was(check.base.verdict)
    return factor(now, before)


def factor(now: float, before: float) -> str:
    """Return the change of an error (not negative) as a factor with a direction."""
    if math.isnan(now) or math.isnan(before):
        return "?"
    if now == before:
        return SAME
    if before == 0:
        return f"{_UP} from 0"
    if now == 0:
        return f"{_DOWN} to 0"
    if math.isinf(before):
        return f"{_DOWN} from ∞"
    share = now / before
    if 0.95 < share < 1.05:
        return SAME
    return f"{_UP if share > 1 else _DOWN} ×{grouped(share)}"


def _was(verdict: str) -> str:
    return f"{_UP} was pass" if verdict == "pass" else f"was {verdict}"
