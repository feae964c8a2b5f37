"""A result against the baseline's, in a word or a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx_gate.report.model import Baseline, Check, ModelResult, Report, Verdict
from onnx_gate.report.story.summary import percent, worst
from onnx_gate.text import format_int, group_digits, plain, printed

_NAME, _CASE = 60, 80
# A share of the tolerance that changed by less, or is less, is no news: machines differ by as much.
_GREW = 2.0
_NEAR = 0.1
SAME, NEW, FIXED = "±0", "new", "fixed"
_UP, _DOWN = "▲", "▼"
_PAST: dict[Verdict, str] = {
    "pass": "passed",
    "diverged": "diverged",
    "error": "could not be verified",
}


def change_cell(model: ModelResult, check: Check | None) -> str:
    """Return how a model stands against the baseline, by ``check``, its worst one.

    ``▲ ×8 000`` is an error that many times the baseline's, ``±0`` the same within 5 %.
    """
    if model.base is None:
        return NEW
    if model.verdict == "pass" and model.base != "pass":
        return FIXED
    if model.error is not None or check is None:
        return SAME if model.base == model.verdict else _was(model.base)
    return _change(check)


def check_change(check: Check) -> str:
    """Return how one check stands against the same check of the baseline.

    Where it has used another share of its tolerance, that follows: ``▲ ×1.8 (was 20 %)``.
    """
    before = check.base.budget if check.base is not None else None
    if before is None or (check.budget is not None and percent(before) == percent(check.budget)):
        return _change(check)
    return f"{_change(check)} (was {percent(before)})"


def change_sentence(model: ModelResult) -> str:
    """Return a sentence on how a model stands against the baseline."""
    if model.base is None:
        return "it is not in the baseline"
    before = f"it {_PAST[model.base]} in the baseline"
    if newly_passes(model):
        return f"{FIXED}: {before}"
    check = worst(model) if model.error is None else None
    return f"{before}: {check_change(check)}" if check is not None else before


@dataclass(frozen=True)
class OutputChange:
    """What an output used of its tolerance in the baseline and uses now, each in its worst case there."""

    output: str
    before: float
    now: float
    case: str

    def __str__(self) -> str:
        """Return ``logits: was 40 % of the tolerance, is ×41 (edges/large/batch=2)``."""
        shares = f"was {percent(self.before)} of the tolerance, is {percent(self.now)}"
        return f"{plain(self.output, _NAME)}: {shares} ({plain(self.case, _CASE)})"


def output_changes(model: ModelResult) -> list[OutputChange]:
    """Return each output whose worst case is nearer to its limit or farther from it, the worst first.

    Over the checks that the baseline has as well. What is far within the limit, then and now, is left
    out, and so is what two machines may differ by.
    """
    shares: dict[str, list[tuple[float, float, str]]] = {}
    for check in model.checks:
        base = check.base.budget if check.base is not None else None
        if not check.advice and check.budget is not None and base is not None:
            shares.setdefault(check.output, []).append((check.budget, base, check.case))
    changes = []
    for output, known in shares.items():
        now, _, case = max(known, key=lambda each: _size(each[0]))
        before = max((base for _, base, _ in known), key=_size)
        least, most = sorted((_size(now), _size(before)))
        if most >= _NEAR and least * _GREW <= most and least != most:
            changes.append(OutputChange(output, before, now, case))
    return sorted(changes, key=lambda each: -_size(each.now))


def _size(share: float) -> float:
    return math.inf if math.isnan(share) else share


def tally(report: Report) -> str:
    """Return how many models stand otherwise than in the baseline; empty without a baseline."""
    if report.baseline is None:
        return ""
    models = report.models
    failing = [model for model in models if model.verdict != "pass"]
    counts = (
        (sum(model.base == "pass" for model in failing), "broken"),
        (sum(model.base not in (None, "pass") for model in failing), "still failing"),
        (sum(model.base is None for model in models), NEW),
        (sum(newly_passes(model) for model in models), FIXED),
    )
    shown = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"against the baseline{_named(report.baseline)}: {shown or 'no change of any verdict'}"


def _named(baseline: Baseline) -> str:
    """Return `` (4f1c2e9, run 17, diverged)``, of which what is not known is left out."""
    known = (
        printed(baseline.sha)[:7] if baseline.sha else "",
        f"run {format_int(baseline.run)}" if baseline.run is not None else "",
        baseline.verdict or "",
    )
    return f" ({', '.join(part for part in known if part)})" if any(known) else ""


def newly_passes(model: ModelResult) -> bool:
    """Return whether a model passes that did not in the baseline."""
    return model.verdict == "pass" and model.base in ("diverged", "error")


def _change(check: Check) -> str:
    if check.base is None:
        return NEW
    if check.base.verdict == "diverged" and check.verdict != "diverged":
        return FIXED
    now, before = check.error, check.base.error
    if now is None or before is None:
        now, before = check.largest_difference, check.base.max_abs
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
    return f"{_UP if share > 1 else _DOWN} ×{group_digits(share)}"


def _was(verdict: str) -> str:
    return f"{_UP} was pass" if verdict == "pass" else f"was {verdict}"
