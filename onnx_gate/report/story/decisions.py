"""How many decisions of a model's operators were seen both ways, in words."""

from __future__ import annotations

from onnx_gate.report.model.decisions import Decision, Decisions, Side
from onnx_gate.report.model.result import ModelResult
from onnx_gate.text import format_int, plain

_SIDES: dict[Side, str] = {
    "below": "below {}",
    "above": "above {}",
    "equal": "equal to {}",
    "different": "other than {}",
    "true": "true",
    "false": "false",
    "both": "both at once",
    "neither": "neither of two",
    "first": "the first of two alone",
    "second": "the second of two alone",
    "even": "at a half above an even number",
    "odd": "at a half above an odd number",
    "within": "within {}",
    "beyond": "beyond {}",
}

# What reads no rows of a weight but chooses among values.
_CHOOSING = frozenset(("amax", "amin", "max", "min", "scatter"))


def sentence(model: ModelResult) -> str:
    """Return ``96 of 98 decisions seen both ways, 1 compared at its operator, 1 never``, or nothing."""
    return counted(model.decisions) if model.decisions is not None else ""


def counted(decisions: Decisions) -> str:
    """Return how many were seen both ways."""
    if not decisions.of:
        return ""
    compared = decisions.compared
    left = decisions.of - decisions.seen - compared
    noun = "decision" if decisions.of == 1 else "decisions"
    of = f"{format_int(decisions.seen)} of {format_int(decisions.of)} {noun} seen both ways"
    whose = "its operator" if compared == 1 else "their operators"
    parts = [
        of,
        *([f"{format_int(compared)} compared at {whose}"] if compared else []),
        *([f"{format_int(left)} never"] if left else []),
    ]
    return ", ".join(parts)


def what(decision: Decision) -> str:
    """Return what was never seen: ``never above 6``, ``33 of 512 rows read``, ``4 of 5 chosen``."""
    if decision.read is not None and decision.limit is not None:
        done = "chosen" if decision.operator in _CHOOSING else "rows read"
        return f"{format_int(decision.read)} of {format_int(int(decision.limit))} {done}"
    return " or ".join(f"never {side}" for side in _sides(decision))


def beyond(decision: Decision) -> str:
    """Return which sides are meant: ``below 1e-12``."""
    return " or ".join(_sides(decision))


def _sides(decision: Decision) -> list[str]:
    limit = "its limit" if decision.limit is None else f"{decision.limit:g}"
    return [_SIDES[side].format(limit) for side in decision.never]


def where(decision: Decision) -> str:
    """Return ``layers.1 (models/net.py:12)``."""
    source = decision.source
    place = f" ({plain(source.file, 200)}:{format_int(source.line)})" if source is not None else ""
    return f"{plain(decision.module, 120) or 'forward'}{place}"
