"""The page to look at answers what people ask, from its text and its pictures; and it is bounded."""

from __future__ import annotations

import re

import pytest

from onnx_gate.report import html
from onnx_gate.report.diagnosis import Pictures
from onnx_gate.report.model import Report
from onnx_gate.report.sentence import of_model, of_report
from tests.support.report.reports import check
from tests.support.report.scenes import diverged, model, whole

PICTURES = Pictures(
    scale=1.0,
    allowed=8.3e-5,
    histogram=(0, 2, 0, 5, 0, 1, 0, 0, 0, 0),
    pairs=((0.25, 0.251), (0.5, 0.5), (0.1, 0.1)),
    map=((0.5, 12.0), (0.0, 0.1)),
    map_of=(2, 2),
)


def drawn() -> Report:
    report = diverged()
    models = tuple(
        m.model_copy(update={"diagnosis": m.diagnosis.model_copy(update={"pictures": PICTURES})})
        if m.diagnosis is not None
        else m
        for m in report.models
    )
    return report.model_copy(update={"models": models})


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("which model", '<a href="#model-gpt"><code>gpt</code></a>'),
        ("which input", "in typical/0"),
        ("which element", "logits[0, 3]"),
        ("how far off, and how far is allowed", "error 1.0e-03, allowed 8.3e-05"),
        ("which node", "the first wrong node is Gelu, number 3, with an error of 1.0e-03"),
        ("which line of mine", "models/gpt.py:7"),
        ("is it new", "it is not in the baseline"),
        ("how do I see it again", "$ onnx-gate replay onnx-gate-report/repro/gpt/typical-0"),
        ("how many elements", "1 of them are outside the tolerance"),
        ("where in the output", "1 of 4 tiles have an error outside the tolerance"),
    ],
)
def test_the_page_answers(question: str, answer: str) -> None:
    assert answer in html.render(drawn()), question


def test_the_page_loads_and_runs_nothing() -> None:
    page = html.render(drawn())
    assert not re.search(r"<script|<link|<img|\bon\w+=|https?://|url\(", page)
    assert page.count("<svg") == page.count('role="img"') == page.count("<figcaption>") >= 4


def test_the_page_of_very_many_checks_is_bounded() -> None:
    bad = check("edges/zeros", "diverged", budget=41.0)
    many = whole(model("net", bad, *[check("a/0")] * 30_000, verdict="diverged"))
    page = html.render(many)
    assert len(page) < 2_000_000
    assert "29001 more checks are in report.json" in page
    assert page.index("edges/zeros") < page.index("a/0")


def test_the_sentence_says_the_worst_of_many() -> None:
    assert str(of_report(diverged())).startswith(
        "whisper: the model could not be exported: aten::foo"
    )
    gpt = next(m for m in diverged().models if m.name == "gpt")
    assert str(of_model(gpt, "ml/onnx-gate.yml")) == (
        "gpt: in typical/0 ONNX says 0.251 where PyTorch says 0.25 in logits[0, 3] (error 1.0e-03, "
        "allowed 8.3e-05): the exporter wrote another computation, first wrong at Gelu in mlp.act, "
        "ml/models/gpt.py:7. Write that line with other operators, or export with another exporter."
    )
