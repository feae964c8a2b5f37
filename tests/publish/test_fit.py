"""A comment fits whatever the report holds, and is the longest rendering that does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnx_gate.findings.finding import Finding
from onnx_gate.github.fit import COMMENT_LIMIT, SUMMARY_LIMIT, comment_text, summary_text
from onnx_gate.report.model import Change, ModelError, ModelResult, Problem, Report
from onnx_gate.report.render.markdown import Page, View, render
from tests.support.profiles import tries
from tests.support.report.everything import all_replaced
from tests.support.report.page import page
from tests.support.report.reports import check
from tests.support.report.scenes import VIEW, model, whole

LEAST = 1500
WIDE = "𝒜🧨"


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def failed(name: str, message: str) -> ModelResult:
    error = ModelError(kind="crashed", code="OG501", message=message, tail=(message,) * 3)
    return ModelResult(name=name, verdict="error", error=error)


def far_off(name: str, text: str, budget: float) -> ModelResult:
    bad = [check(f"{text}/{number}", "diverged", budget=budget, reason=text) for number in range(3)]
    found = Finding(code="OG102", severity="error", message=text)
    return model(name, *bad, verdict="diverged", findings=(found,))


texts = st.text(alphabet=f"ab`|<>#@\n{WIDE}", max_size=60).map(lambda text: text * 12)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    many = st.integers(0, 6)
    failing = [failed(draw(texts), draw(texts)) for _ in range(draw(many))]
    failing += [
        far_off(draw(texts), draw(texts), draw(st.floats(1, 99))) for _ in range(draw(many))
    ]
    warned = Finding(code="OG103", severity="warning", message=draw(texts))
    passing = [model(draw(texts), findings=(warned,)) for _ in range(draw(many))]
    text = draw(texts)
    return whole(
        *failing,
        *passing,
        problems=[Problem(message=text, file="a.yml", line=3)] * draw(st.integers(0, 60)),
        changes=[Change(kind="other", message=text)] * draw(st.integers(0, 60)),
        notes=[text] * draw(many),
    )


@settings(max_examples=tries(60))
@given(reports(), st.integers(0, 40), st.integers(-2, 2), st.sampled_from([View(), VIEW]))
@example(whole(*[failed(WIDE * 50, WIDE * 2000)] * 3), 4, 0, VIEW)
def test_a_comment_is_the_longest_that_fits(
    report: Report, level: int, spare: int, view: View
) -> None:
    levels = [render(report, replace(view, level=n)) for n in range(Page(report, view).last + 1)]
    room = max(LEAST, utf16(levels[min(level, len(levels) - 1)]) + spare)
    text = comment_text(report, view, room)
    assert utf16(text) <= room
    assert len(text) <= room
    first = levels.index(text)
    assert first == 0 or utf16(levels[first - 1]) > room, "a longer one would have fitted"
    assert text.splitlines()[0] == levels[0].splitlines()[0]
    assert page(text).unbalanced == []
    for left in range(first):
        assert "see the" in text or "explained in the" in text or "too long" in text, left


def test_each_level_says_what_it_leaves_out() -> None:
    models = [far_off(f"model-{number}", "text", 99.0 - number) for number in range(12)]
    warned = Finding(code="OG103", severity="warning", message="float64 input")
    report = whole(*models, model("fine", findings=(warned,)), model("well"))
    levels = [render(report, replace(VIEW, level=n)) for n in range(Page(report, VIEW).last + 1)]
    assert [utf16(text) for text in levels] == sorted(map(utf16, levels), reverse=True)
    for text in levels:
        named = {name for name in (m.name for m in models) if f"{name}</code> |" in shown(text)}
        explained = len(re.findall(r"<details(?: open)?><summary>❌", text))
        assert page(text).unbalanced == []
        if len(named) == 12 and 0 < explained < 12:
            assert f"{12 - explained} more of them" in text
        if 0 < len(named) < 12:
            assert "model-0" in shown(text), "the worst stays longest"
            assert f"{12 - len(named)} more models failed: see the [full report](" in text
    assert "fine" not in levels[1]
    assert "1 warning of models that pass: see the [full report](" in levels[1]
    assert "12 diverged, 0 could not be verified, 2 agree" in levels[-1]
    assert str(VIEW.report_url) in levels[-1]
    assert str(VIEW.run_url) in levels[-1]


def shown(markdown: str) -> str:
    return markdown.replace("&#45;", "-")


@pytest.mark.parametrize("text", [WIDE * 2**17, "`" * 2**20, "&" * 2**20, "\n" * 2**20, "\u0301"])
def test_the_verdict_fits_in_very_little_room(text: str) -> None:
    report = all_replaced(text)
    urls: Any = ["https://a.example/" + text[:2000]] * 6
    huge = View(*urls, manifest_path=text)
    urls = ["https://a.example/" + "x" * 900] * 6
    long = View(*urls, manifest_path=text)
    for view in (VIEW, huge, long):
        short = comment_text(report, view, LEAST)
        assert utf16(short) <= LEAST
        assert short.startswith("## 💥 ONNX gate: ")
        assert page(short).unbalanced == []
        assert utf16(comment_text(report, view)) <= COMMENT_LIMIT
        assert len(summary_text(report, view, LEAST).encode()) <= LEAST


def test_thousands_of_models_with_endless_messages() -> None:
    """Work is bounded by the room: what is cut off is not looked at (ended by the time limit)."""
    message = f"{WIDE}`|\n" * 2**17
    failing = [failed(f"model-{number}", message) for number in range(10_000)]
    report = whole(*failing, *[model(f"fine-{number}") for number in range(1000)])
    text = comment_text(report, VIEW)
    assert COMMENT_LIMIT - 1000 < utf16(text) <= COMMENT_LIMIT
    assert page(text).unbalanced == []
    text = summary_text(report, VIEW)
    assert SUMMARY_LIMIT - 30_000 < len(text.encode()) <= SUMMARY_LIMIT


def test_what_fits_is_whole() -> None:
    report = whole(model("a"), verdict="pass")
    assert comment_text(report, VIEW) == summary_text(report, VIEW) == render(report, VIEW)
    shorter = replace(VIEW, level=1)
    assert comment_text(report, shorter) == render(report, shorter)
