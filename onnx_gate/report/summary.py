"""What a report comes down to in a line, a number, or a row: pure functions of its types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from onnx_gate.report.model import Check, ModelResult, Report

MARKS = {"pass": "✅", "diverged": "❌", "error": "💥"}


def failing(model: ModelResult) -> list[Check]:
    """Return the checks that fail a model, the worst first."""
    checks = [c for c in model.checks if c.verdict == "diverged" and not c.advice]
    return sorted(checks, key=lambda c: -_budget(c))


def closest(checks: Iterable[Check]) -> Check | None:
    """Return the check that used most of its tolerance."""
    counted = [c for c in checks if not c.advice and c.budget is not None and c.metrics is not None]
    return max(
        counted,
        key=lambda c: (_budget(c) > 0 and not within_rounding(c), _budget(c)),
        default=None,
    )


def within_rounding(check: Check) -> bool:
    """Say whether a check is so close to PyTorch that its own limit was not worked out."""
    return check.tolerance.get("basis") == "floor" and check.verdict == "pass"


def used(check: Check | None) -> str:
    """Return the share of its tolerance that a check used, for people."""
    if check is None:
        return ""
    if within_rounding(check) or check.budget == 0:
        return "rounding" if check.budget else "equal"
    return percent(check.budget)


def model_line(model: ModelResult) -> str:
    """Return one line about a model, without its name and verdict."""
    seconds = sum(stage.seconds for stage in model.stages)
    took = f"{seconds:.1f} s"
    if model.error is not None:
        return f"{model.error.kind}: {model.error.message.splitlines()[0]}"
    if model.verdict == "pass":
        near = closest(model.checks)
        share = f", {_used_sentence(near)}" if near is not None else ""
        notes = [
            *_plural(sum(c.verdict == "waived" for c in model.checks), "waived"),
            *_plural(sum(f.severity == "warning" for f in model.findings), "warning"),
        ]
        return f"{counted(model)} checks{share}{''.join(f', {n}' for n in notes)}, {took}"
    bad = failing(model)
    if not bad:
        errors = [f for f in model.findings if f.severity == "error"]
        return f"{errors[0].code}: {errors[0].message}" if errors else "diverged"
    worst = bad[0]
    return f"{len(bad)} of {counted(model)} checks diverged; {worst.case}, {worst.output}: {worst.reason}"


def headline(report: Report) -> str:
    """Return the verdict and the count, readable as the subject of a mail."""
    total = len(report.models)
    counts = report.counts
    parts = []
    if counts.diverged:
        parts.append(f"{counts.diverged} of {total} models diverged")
    if counts.error:
        parts.append(f"{counts.error} of {total} could not be verified")
    if not parts:
        return f"all {total} models agree" if total != 1 else "the model agrees"
    if report.verdict == "pass":
        parts.append("none of them required")
    return ", ".join(parts)


def counted(model: ModelResult) -> int:
    """Return the number of checks that count for the verdict."""
    return sum(not check.advice for check in model.checks)


def percent(share: float | None) -> str:
    """Return a share of a tolerance as a percentage, or as a factor from 10 on."""
    if share is None or math.isnan(share):
        return "?"
    if math.isinf(share):
        return "∞"
    if share >= 10:
        return f"×{number(share)}"
    return "<1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def number(value: float | None) -> str:
    """Return a number with two significant digits."""
    if value is None:
        return ""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    return (
        f"{value:.0f}"
        if 10 <= abs(value) < 10_000
        else f"{value:.1e}"
        if abs(value) < 0.01 or abs(value) >= 10_000
        else f"{value:.2g}"
    )


def apart(expected: float, actual: float) -> tuple[str, str]:
    """Return both numbers with as many digits as it takes to tell them apart, at least four."""
    for digits in range(4, 18):
        shown = f"{expected:.{digits}g}", f"{actual:.{digits}g}"
        if shown[0] != shown[1]:
            return shown
    return shown


def error_of(check: Check) -> float | None:
    """Return the largest difference of a check; NaN or an infinity on one side is infinite."""
    if check.metrics is None:
        return None
    if check.metrics.nonfinite:
        return math.inf
    return check.metrics.max_abs


def versions(report: Report) -> str:
    """Return ``torch 2.13.0 → onnxruntime 1.31.1 (AVX2, x86_64)``."""
    env = report.environment
    left = f"torch {env['torch']}" if "torch" in env else ""
    right = (
        f"onnxruntime {env['onnxruntime']}"
        if "onnxruntime" in env
        else f"onnx {env.get('onnx', '')}"
    )
    where = ", ".join(str(env[k]) for k in ("cpu_capability", "machine") if k in env)
    return f"{left} → {right}" + (f" ({where})" if where else "") if left else ""


def ordered(models: Sequence[ModelResult]) -> list[ModelResult]:
    """Return errors and divergences first, each group in the manifest's order."""
    rank = {"error": 0, "diverged": 1, "pass": 2}
    return sorted(models, key=lambda m: rank[m.verdict])


def _used_sentence(check: Check) -> str:
    share = used(check)
    if share == "equal":
        return "all equal"
    return "within rounding" if share == "rounding" else f"{share} of the tolerance used"


def _plural(count: int, word: str) -> list[str]:
    if not count:
        return []
    return [f"{count} {word}" + ("s" if count > 1 and word != "waived" else "")]


def _budget(check: Check) -> float:
    if check.budget is None or math.isnan(check.budget):
        return math.inf
    return check.budget
