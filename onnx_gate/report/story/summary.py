"""What a report comes down to in a line, a number, or a row: pure functions of its types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Change, Check, Deviation, ModelResult, Problem, Report
from onnx_gate.report.model.check import REACHED
from onnx_gate.text import counted, format_int, group_digits, number, plain

_FIRST_LINE = 500
_HEADLINE_NAME = 60
_SHOWN_OTHERS = 5
_READ_OTHERS = 1000

# Times its tolerance, from which a share says nothing.
_FAR = 1e6
# The measures that are errors, and of what.
ERRORS = {"error": "", "constant factor": " × output", "one sign": " × rounding"}

MARKS = {"pass": "✅", "diverged": "❌", "error": "💥"}


def failing(model: ModelResult) -> list[Check]:
    """Return the checks that fail a model: what its diagnosis is about, then the worst first.

    Of calls in a row the earliest: what comes after it has been fed what was wrong already. What the
    model's own suites show goes before what was reached beside them, and of these an ordinary case before
    one of ones or of zeros, on which many a wrong computation is right.
    """
    about = model.diagnosis
    bad = [c for c in model.checks if c.verdict == "diverged" and not c.advice]
    bad.sort(
        key=lambda c: (c.steps.at if c.steps else 1, c.suite == REACHED, bool(c.edge), -_budget(c))
    )
    if about is None:
        return bad
    key = about.runtime, about.case, about.output
    return sorted(bad, key=lambda c: (c.runtime, c.case, c.output) != key)


def causes(model: ModelResult, check: Check | None = None) -> list[Finding]:
    """Return the errors among a model's findings that can be why ``check`` diverges, its worst if none.

    One about some sizes is no reason at others.
    """
    check = check or next(iter(failing(model)), None)
    return [
        finding
        for finding in model.findings
        if finding.severity == "error" and (check is None or _at(finding, check))
    ]


def _at(finding: Finding, check: Check) -> bool:
    broken = finding.data.get("broken")
    if not isinstance(broken, (list, tuple)) or not broken:
        return True
    return any(isinstance(each, Mapping) and each.items() <= check.sizes.items() for each in broken)


def closest(checks: Iterable[Check]) -> Check | None:
    """Return the check that used most of its tolerance."""
    counted = [c for c in checks if not c.advice and c.budget is not None and c.metrics is not None]
    return max(
        counted,
        key=lambda c: (_budget(c) > 0 and not within_rounding(c), _budget(c), c.open),
        default=None,
    )


def worst(model: ModelResult) -> Check | None:
    """Return the first check that fails a model, or else the one closest to failing."""
    return next(iter(failing(model)), None) or closest(model.checks)


def within_rounding(check: Check) -> bool:
    """Return whether a check is so close to PyTorch that its own limit was not worked out."""
    return check.tolerance.get("basis") == "floor" and check.verdict == "pass"


def used(check: Check | None) -> str:
    """Return the share of its tolerance that a check used, or why there is none, for people.

    Beyond a million there is hardly anything allowed, as where PyTorch answers 0: then how far off
    it is says more.
    """
    if check is None:
        return ""
    if check.verdict == "diverged" and check.deviation is None:
        return check.form or ("refused" if check.refused else percent(check.budget))
    if check.deviation is not None and _far(check.budget) and check.deviation.measure == "error":
        return f"off by {number(check.deviation.value)}"
    if within_rounding(check) or check.budget == 0:
        return "rounding" if check.budget else "open" if check.open else _nothing(check)
    return percent(check.budget)


def _nothing(check: Check) -> str:
    """Return what it is to have used nothing: numbers may differ and agree by what is asked of them."""
    return percent(0.0) if check.metrics is not None and check.metrics.max_abs else "equal"


def model_line(model: ModelResult) -> str:
    """Return one line about a model, without its name and verdict."""
    return _line(model) + (", from the cache" if model.cached else "")


def _line(model: ModelResult) -> str:
    if model.error is not None:
        return f"{model.error.kind}: {first_line(model.error.message)}"
    if model.verdict == "pass":
        near = closest(model.checks)
        share = f", {used_sentence(near)}" if near is not None else ""
        waived = sum(c.verdict == "waived" for c in model.checks)
        warnings = sum(f.severity == "warning" for f in model.findings)
        notes = [f"{waived} waived"] if waived else []
        notes += [counted(warnings, "warning")] if warnings else []
        line = f"{counting(model)} checks{share}{''.join(f', {n}' for n in notes)}"
        return line if model.cached else f"{line}, {seconds(model)} s"
    bad = failing(model)
    if not bad:
        errors = [f for f in model.findings if f.severity == "error"]
        return f"{errors[0].code}: {first_line(errors[0].message)}" if errors else model.verdict
    first = bad[0]
    of = _diverged(model, bad)
    case, output, reason = (first_line(part) for part in (first.case, first.output, first.reason))
    return f"{of}; {case}, {output}" + (f": {reason}" if reason else "")


def outcome(model: ModelResult) -> str:
    """Return how a model failed, in a few words: how many checks, or the error's code."""
    if model.error is not None:
        return f"{model.error.kind}, {model.error.code}"
    bad = failing(model)
    return _diverged(model, bad) if bad else model.verdict


def _diverged(model: ModelResult, bad: Sequence[Check]) -> str:
    """Say how many checks diverged, and of how many of them a runtime gave no answer at all."""
    told = f"{len(bad)} of {counting(model)} checks diverged"
    refused = sum(check.refused == ("runtime",) for check in bad)
    return f"{told}, {refused} of them refused by the runtime" if refused else told


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, at most 500 characters of it."""
    return next((line for line in text[:_FIRST_LINE].splitlines() if line.strip()), "")


def seconds(model: ModelResult) -> str:
    """Return the time that a model took."""
    total = model.taken
    return f"{total:.1f}" if abs(total) < 1e6 else number(total)


def headline(report: Report) -> str:
    """Return the verdict and the count, readable as the subject of a mail."""
    total, counts = len(report.models), report.counts
    parts = []
    if counts.diverged:
        parts.append(f"{_share(counts.diverged, report.models)} diverged")
    if counts.error:
        parts.append(f"{_share(counts.error, report.models, noun=not parts)} could not be verified")
    if report.problems:
        # Not "3 of 3 models agree": nobody knows whether there should have been more.
        parts.append(_other(report))
        if counts.passed and len(parts) == 1:
            agree = "agrees" if counts.passed == 1 else "agree"
            parts.append(f"{counted(counts.passed, 'model')} {agree}")
    if report.verdict == "pass":
        if counts.diverged or counts.error:
            parts.append("none of them required")
        elif total and not parts:
            return (
                f"all {total} models agree" if total != 1 else f"{_name(report.models[0])} agrees"
            )
    return ", ".join(parts) or ("the run failed" if total else "no model was verified")


def tally(report: Report) -> str:
    """Return how many models there are of each verdict."""
    counts = report.counts
    return (
        f"{format_int(counts.diverged)} diverged, {format_int(counts.error)} could not be verified, "
        f"{format_int(counts.passed)} agree"
    )


def counting(model: ModelResult) -> int:
    """Return the number of checks that count for the verdict."""
    return sum(not check.advice for check in model.checks)


def percent(share: float | None) -> str:
    """Return a share of a tolerance as a percentage, or as a factor from 10 on."""
    if share is None or math.isnan(share):
        return "?"
    if math.isinf(share):
        return "∞"
    if _far(share):
        return f"over ×{group_digits(_FAR)}"
    if share >= 10:
        return f"×{group_digits(share)}"
    if 0 < share < 0.01:
        return "<1 %"
    shown = f"{share * 100:.0f} %"
    return ">100 %" if shown == "100 %" and share > 1 else shown


def indices(index: Sequence[int]) -> str:
    """Return ``[0, 3]``, the first eight of what may be very many."""
    shown = ", ".join(format_int(place) for place in index[:8])
    return f"[{shown}, …]" if len(index) > 8 else f"[{shown}]"


def mebibytes(size: int) -> str:
    """Return a number of bytes in MiB."""
    return f"{size / 2**20:.1f}" if abs(size) < 2**60 else "very many"


def distinct_digits(one: float, other: float, least: int = 4) -> tuple[str, str]:
    """Return both numbers with as many digits as it takes to tell them apart, at least ``least``."""
    for digits in range(least, 18):
        shown = _digits(one, digits), _digits(other, digits)
        if shown[0] != shown[1]:
            return shown
    return shown


def _digits(value: float, digits: int) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else number(value)


def error_and_limit(check: Check) -> tuple[str, str]:
    """Return the error of a check and what was allowed, in one unit; the digits tell them apart.

    A criterion that is no error is named: ``cosine 0.98``. Both are empty where nothing was
    measured, or no element had to be.
    """
    deviation = check.deviation
    if deviation is None:
        return "", ""
    value, allowed = value_and_limit(deviation)
    name = "" if deviation.measure == "error" else f"{deviation.measure} "
    return name + value, allowed


def value_and_limit(deviation: Deviation) -> tuple[str, str]:
    """Return what was measured and its limit, with digits that tell them apart."""
    value, allowed = deviation.value, deviation.allowed
    if deviation.measure not in ERRORS:
        # A limit of this kind is one that somebody wrote down.
        return distinct_digits(value, allowed)
    shown = number(value), number(allowed)
    if shown[0] == shown[1]:
        shown = distinct_digits(value, allowed, 3)
    unit = ERRORS[deviation.measure]
    return shown[0] + unit, shown[1] + unit


def deviation_sentence(deviation: Deviation) -> str:
    """Return ``error 0.039 where 1.2e-06 is allowed``, ``snr_db 14.3 where at least 25 is asked``."""
    value, allowed = value_and_limit(deviation)
    limit = f"{allowed} is allowed" if deviation.is_error else f"at least {allowed} is asked"
    return f"{deviation.measure} {value} where {limit}"


def versions(report: Report) -> str:
    """Return ``torch 2.13.0 → onnxruntime 1.31.1 (AVX2, x86_64)``.

    Where a package of the image was replaced by the repository's requirements, both versions are
    named. What is not a word or a number is left out: the environment is free-form.
    """
    replaced = _replaced(report.environment.get("replaced"))
    names = ["torch", "onnxruntime" if "onnxruntime" in report.environment else "onnx"]
    shown = {name: _word(report.environment.get(name)) for name in names}
    ends = [_version(name, shown[name], replaced) for name in names if shown[name]]
    others = [name for name in sorted(replaced) if name not in names][:_SHOWN_OTHERS]
    where = [_word(report.environment.get(key)) for key in ("cpu_capability", "machine")]
    line = " → ".join(ends)
    if line and any(where):
        line += f" ({', '.join(part for part in where if part)})"
    rest = [_version(name, replaced[name][1], replaced) for name in others]
    return ", ".join(part for part in (line, *rest) if part)


def opsets(report: Report) -> str:
    """Return ``opset 20``, or all the opsets there are."""
    opsets = sorted({m.export.opset for m in report.models if m.export is not None})
    shown = [format_int(opset) for opset in opsets[:5]] + ["…"] * (len(opsets) > 5)
    return f"opset{'s' if len(opsets) > 1 else ''} {', '.join(shown)}" if opsets else ""


def sandbox(report: Report) -> str:
    """Return the level of the sandbox, and what it lacks; empty where the report has none."""
    box = report.sandbox
    if box is None:
        return ""
    if box.level in ("full", "off"):
        return f"sandbox: {box.level}"
    named = [plain(part, 80) for part in box.missing[:10]]
    missing = named or [
        name for name, there in (("Landlock", box.landlock), ("seccomp", box.seccomp)) if not there
    ]
    return f"sandbox: {box.level}" + (f", missing {', '.join(missing)}" if missing else "")


def problem_line(problem: Problem) -> str:
    """Return ``file:line:column: path: message``, as a compiler writes it."""
    position = [problem.file or ""]
    position += [format_int(part) for part in (problem.line, problem.column) if part is not None]
    return ": ".join(part for part in (":".join(position), problem.path, problem.message) if part)


def change_line(change: Change) -> str:
    """Return what is asked less of which model."""
    return f"{change.model}: {change.message}" if change.model else change.message


def shard(report: Report) -> str:
    """Return ``shard 2 of 4``, or nothing where the report covers the whole manifest."""
    part = report.shard
    return f"shard {format_int(part.index)} of {format_int(part.count)}" if part is not None else ""


def rank(model: ModelResult) -> tuple[bool, bool, bool, float]:
    """Return what puts failing models, the worst first, before those that pass.

    Required ones are worse than others, errors worse than divergences, and of two divergences
    the one that used more of its tolerance.
    """
    if model.verdict == "pass":
        return True, False, False, 0.0
    bad = (_budget(c) for c in model.checks if c.verdict == "diverged" and not c.advice)
    return False, not model.required, model.verdict != "error", -max(bad, default=0.0)


def _share(count: int, models: Sequence[ModelResult], noun: bool = True) -> str:
    total = len(models)
    if total == 1 and count == 1 and noun:
        return _name(models[0])
    return f"{format_int(count)} of {total}" + (" models" if noun else "")


def _name(model: ModelResult) -> str:
    return plain(model.name, _HEADLINE_NAME) or "the model"


def _other(report: Report) -> str:
    count = len(report.problems)
    if report.models:
        return f"{counted(count, 'problem')} with the run"
    if any(problem.line is None for problem in report.problems):
        return "nothing was verified"
    return f"the manifest has {counted(count, 'mistake')}"


def _word(value: object) -> str:
    if isinstance(value, str):
        return plain(value, 40)
    return repr(value)[:40] if isinstance(value, float) else ""


def _replaced(value: object) -> dict[str, tuple[str, str]]:
    """The versions of the image and of the run, of packages that the requirements replaced."""
    pairs = {}
    for name, pair in islice(value.items(), _READ_OTHERS) if isinstance(value, dict) else ():
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_word, pair)):
            pairs[plain(name, 40)] = _word(pair[0]), _word(pair[1])
    return pairs


def _version(name: str, version: str, replaced: dict[str, tuple[str, str]]) -> str:
    image = replaced.get(name, (version, ""))[0]
    return f"{name} {version}" + (f" (the image has {image})" if image != version else "")


def used_sentence(check: Check) -> str:
    """Return the share of its tolerance that a check used, in words."""
    share = used(check)
    if share == "equal":
        return "all equal"
    if share == "open":
        return "equal where the answer is not open"
    if share == "rounding":
        return "within rounding"
    return share if share.startswith("off") else f"{share} of the tolerance used"


def _far(budget: float | None) -> bool:
    return budget is not None and _FAR < budget < math.inf


def _budget(check: Check) -> float:
    if check.budget is None or math.isnan(check.budget):
        return math.inf
    return check.budget
