"""Every blame has its words in every rendering, and a file is not called PyTorch."""

from __future__ import annotations

from typing import get_args

import pytest

from onnx_gate.report.model import Report
from onnx_gate.report.model.diagnosis import Blame, Diagnosis
from onnx_gate.report.render import html, junit, markdown, sarif, terminal
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole


def blamed(blame: Blame, *, file: bool, runtime: str = "onnxruntime") -> Report:
    diagnosis = Diagnosis(
        runtime=runtime,
        case="edges/zeros",
        output="logits",
        blame=blame,
        against="the reference" if file else "PyTorch",
        evidence=({"experiment": "tried", "outcome": "differs", "agrees": False},),  # type: ignore[arg-type]
    )
    bad = check("edges/zeros", "diverged", budget=41.0, reason="too far")
    reference = "base.onnx" if file else None
    return whole(
        model("int8", bad, verdict="diverged", diagnosis=diagnosis, reference=reference),
        model("fine", reference=reference),
    )


@pytest.mark.parametrize("blame", get_args(Blame))
def test_every_blame_has_its_words(blame: Blame) -> None:
    for render in (terminal.render, markdown.render, html.render, junit.render, sarif.render):
        assert render(blamed(blame, file=False))
        text = render(blamed(blame, file=True))
        if render is not sarif.render:  # its rules are described for all runs
            assert "PyTorch" not in text, render.__module__


def test_a_kernel_is_that_of_the_engine_that_diverged() -> None:
    for render in (terminal.render, markdown.render, html.render, junit.render):
        text = render(blamed("kernel", file=False, runtime="mnn[precision=low]"))
        assert "ONNX Runtime" not in text, render.__module__
        assert "mnn" in text, render.__module__
