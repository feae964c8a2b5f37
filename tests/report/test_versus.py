"""A report beside its baseline, in words."""

from __future__ import annotations

from html import unescape

from onnx_gate.report.model import Baseline, Check, CheckBase
from onnx_gate.report.render import html, markdown, terminal
from onnx_gate.report.story.versus import output_changes
from tests.support.report.page import page
from tests.support.report.reports import check
from tests.support.report.scenes import far, model, whole


def test_what_changed_since_the_base_is_said_for_each_output() -> None:
    def since(output: str, case: str, now: float, before: float, **more: object) -> Check:
        verdict = "diverged" if now > 1 else "pass"
        base = CheckBase(verdict="pass", budget=before)
        return check(case, verdict, output=output, **far(now, None, now) | {"base": base} | more)

    shown = whole(
        model(
            "bert",
            since("logits", "typical/0", 0.2, 0.4),
            since("logits", "edges/large/batch=2", 41.0, 0.3),
            since("pooled", "typical/0", 0.4, 0.39),
            since("tiny", "typical/0", 0.02, 0.001),
            since("mended", "typical/0", 0.2, 7.0),
            since("advised", "typical/0", 7.0, 0.2, advice=True),
            verdict="diverged",
            base="pass",
        ),
        baseline=Baseline(sha="4f1c2e9" + "0" * 33),
    )
    said = [
        "logits: was 40 % of the tolerance, is ×41 (edges/large/batch=2)",
        "mended: was 700 % of the tolerance, is 20 % (typical/0)",
    ]
    assert [str(each) for each in output_changes(shown.models[0])] == said
    plain = "".join(page(markdown.render(shown)).text).replace("\u200b", "")
    for text in (terminal.render(shown), unescape(html.render(shown)), plain):
        for line in said:
            assert line in text
