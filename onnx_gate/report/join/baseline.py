"""A report beside an earlier one: each check with what it was then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from onnx_gate.report.model import Baseline, Check, CheckBase, ModelResult, Report

_Key = tuple[str, str, str, str]


def with_baseline(report: Report, base: Report, baseline: Baseline) -> Report:
    """Return ``report`` with the verdicts and errors that ``base``, the ``baseline``'s report, had.

    Models are matched by name, checks by runtime, suite, case and output; where several have the
    same, the first with the first, the second with the second, and so on. What has no match has
    no base.
    """
    before: dict[str, ModelResult] = {}
    for model in base.models:
        before.setdefault(model.name, model)
    models = tuple(_with_base(model, before.get(model.name)) for model in report.models)
    return report.model_copy(update={"models": models, "baseline": baseline})


def baseline_of(base: Report) -> Baseline:
    """Return what is known of the run that made a report."""
    run = base.run.id if base.run is not None else None
    return Baseline(sha=base.sha or None, run=run, verdict=base.verdict)


def _with_base(model: ModelResult, base: ModelResult | None) -> ModelResult:
    earlier: defaultdict[_Key, list[Check]] = defaultdict(list)
    for check in base.checks if base is not None else ():
        earlier[_key(check)].append(check)
    checks = tuple(_checks(model.checks, earlier))
    verdict = base.verdict if base is not None else None
    return model.model_copy(update={"base": verdict, "checks": checks})


def _checks(checks: Iterable[Check], earlier: defaultdict[_Key, list[Check]]) -> Iterable[Check]:
    seen: Counter[_Key] = Counter()
    for check in checks:
        key = _key(check)
        same: Sequence[Check] = earlier.get(key, ())
        base = _base(same[seen[key]]) if seen[key] < len(same) else None
        seen[key] += 1
        yield check.model_copy(update={"base": base})


def _key(check: Check) -> _Key:
    return check.runtime, check.suite, check.case, check.output


def _base(check: Check) -> CheckBase:
    return CheckBase(
        verdict=check.verdict,
        error=check.error,
        max_abs=check.largest_difference,
        budget=check.budget,
    )
