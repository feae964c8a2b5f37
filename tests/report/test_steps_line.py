"""Steps in the renderings: one line, and a chart in the page."""

from __future__ import annotations

import math
from typing import Any

from onnx_gate.report.model import Check, Steps, Tokens
from onnx_gate.report.render import html
from onnx_gate.report.render.plots import by_step
from onnx_gate.report.story.extent import describe
from onnx_gate.report.story.steps import sentence
from onnx_gate.report.story.summary import failing
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole


def _check(case: str, output: str, verdict: str = "pass", **steps: Any) -> Check:
    given = {"count": 3, "at": 3, "max_abs": 1.0, **steps}
    return check(case, verdict, output=output, steps=Steps.model_validate(given))


GOOD = (
    _check("typical/1", "cache", errors=(1e-7, 1e-7, 9e-7), rounding=(None, None, None)),
    _check(
        "typical/0",
        "logits",
        errors=(1.2e-6, 2e-6, 3.4e-6),
        rounding=(1e-6, 1.5e-6, 2.9e-6),
        tokens=Tokens(same=6, of=6),
    ),
    _check("typical/1", "logits", errors=(0.0, 0.0, 0.0), tokens=Tokens(same=2, of=3, differ_at=2)),
)


def test_what_passes_shows_where_pytorch_itself_is() -> None:
    line = (
        "3 steps: logits 1.2e-06 at step 1, 3.4e-06 at step 3 (PyTorch's own rounding 2.9e-06); "
        "8 of 9 tokens the same"
    )
    assert sentence(model("m", *GOOD)) == line
    assert describe(model("m", *GOOD)).endswith(line)
    assert sentence(model("m", check("typical/0", "pass"))) == ""
    drawn = by_step(model("m", *GOOD))
    assert drawn is not None
    assert drawn.body.count('class="line"') == drawn.body.count('class="own"') == 1
    assert drawn.body in html.render(whole(model("m", *GOOD)))


def test_the_first_wrong_step_comes_before_the_largest_error() -> None:
    late = _check("typical/0", "late", "diverged", at=3, errors=(0.0, 0.0, 9.0))
    early = _check("typical/0", "early", "diverged", at=2, errors=(0.0, 1e-3, math.inf))
    bad = model("m", late, early, verdict="diverged")
    assert [each.output for each in failing(bad)] == ["early", "late"]
    assert sentence(bad) == (
        "3 steps: early is first wrong at step 2 (typical/0); its error 0 at step 1, ∞ at step 3"
    )
    drawn = by_step(bad)
    assert drawn is not None
    assert drawn.body.count('class="limit"') == 1


def test_a_report_of_strangers_is_drawn_as_data() -> None:
    hostile = _check(
        "typical/0",
        "</svg><script>x</script>",
        errors=(math.nan, math.inf, -1.0),
        rounding=(math.nan,),
        count=10**30,
        at=10**30,
        tokens=Tokens(same=10**30, of=-1),
    )
    page = html.render(whole(model("m", hostile, verdict="diverged")))
    assert "<script" not in page
    drawn = by_step(model("m", hostile, verdict="diverged"))
    assert drawn is not None
    assert "nan" not in drawn.body
