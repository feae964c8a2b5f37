"""A report beside its baseline: each check finds its own, and nothing else changes."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.report.io import to_json
from onnx_gate.report.join.baseline import with_baseline
from onnx_gate.report.model import (
    Baseline,
    Check,
    CheckBase,
    Deviation,
    Metrics,
    ModelResult,
    Report,
)
from onnx_gate.report.story.versus import check_change
from tests.support.report.reports import check, report

BASELINE = Baseline(sha="4f1c2e9", run=17)


def of(*checks: Check, name: str = "net", verdict: str = "pass") -> Report:
    model = ModelResult.model_validate({"name": name, "verdict": verdict, "checks": checks})
    return report().model_copy(update={"models": (model,)})


def metrics(**values: float) -> Metrics:
    return Metrics.model_validate({"elements": 8, "max_abs": 0, "max_rel": 0, "rms": 0, **values})


def off(value: float) -> Deviation:
    return Deviation(value=value, allowed=1.2e-6)


def test_checks_find_their_own_by_runtime_suite_case_and_output() -> None:
    now = [
        check("edges/nan", suite="other"),
        check("edges/nan", "diverged", advice=True, metrics=metrics(max_abs=1.0)),
        check("edges/nan", runtime="reference"),
        check("edges/nan", output="scores"),
        check("edges/inf"),
    ]
    before = [
        check("edges/nan", deviation=off(0.25), budget=0.5),
        check(
            "edges/nan", "refused", runtime="reference", metrics=None, deviation=None, budget=None
        ),
        check(
            "edges/nan", output="scores", deviation=None, metrics=metrics(max_abs=0.5, nonfinite=1)
        ),
    ]
    found = with_baseline(of(*now), of(*reversed(before), verdict="diverged"), BASELINE)
    assert found.baseline == BASELINE
    assert found.models[0].base == "diverged"
    assert [each.base for each in found.models[0].checks] == [
        None,
        CheckBase(verdict="pass", error=0.25, max_abs=3e-7, budget=0.5),
        CheckBase(verdict="refused"),
        CheckBase(verdict="pass", max_abs=math.inf, budget=0.4),
        None,
    ]


def test_what_changes_is_an_error_whatever_was_measured() -> None:
    def similar(value: float) -> Deviation:
        return Deviation(measure="cosine", value=value, allowed=0.9, unit="agreement")

    now, before = (of(check("a/0", deviation=similar(cosine))) for cosine in (0.96, 0.99))
    model = with_baseline(now, before, BASELINE).models[0]
    assert check_change(model.checks[0]) == "▲ ×4"


def test_a_new_model_has_no_base_and_an_old_one_is_not_kept() -> None:
    old = with_baseline(of(check("a/0")), of(check("a/0"), verdict="diverged"), BASELINE)
    found = with_baseline(old, of(check("a/0"), name="other"), Baseline())
    assert found == of(check("a/0")).model_copy(update={"baseline": Baseline()})


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abcd"), max_size=8))
def test_of_several_alike_the_first_meets_the_first(now: list[str], before: list[str]) -> None:
    numbered = [check(case, budget=float(place)) for place, case in enumerate(before)]
    found = with_baseline(of(*map(check, now)), of(*numbered), BASELINE).models[0].checks
    assert [each.case for each in found] == now
    seen: Counter[str] = Counter()
    for case, each in zip(now, found, strict=True):
        places = [place for place, other in enumerate(before) if other == case]
        expected = places[seen[case]] if seen[case] < len(places) else None
        assert (each.base and each.base.budget) == expected
        seen[case] += 1


def test_nothing_but_the_base_changes() -> None:
    found = with_baseline(report(), report(), BASELINE)
    assert Report.model_validate_json(to_json(found)).baseline == BASELINE
    bare = [
        model.model_copy(
            update={
                "base": None,
                "checks": tuple(c.model_copy(update={"base": None}) for c in model.checks),
            }
        )
        for model in found.models
    ]
    whole = found.model_copy(update={"models": tuple(bare), "baseline": None})
    assert to_json(whole) == to_json(report())


@pytest.mark.slow
def test_a_hundred_thousand_checks_of_one_name_take_no_squares() -> None:
    # Looking each of them up among the others would take hours.
    many = of(*[check("a/0")] * 100_000)
    assert all(each.base for each in with_baseline(many, many, BASELINE).models[0].checks)
