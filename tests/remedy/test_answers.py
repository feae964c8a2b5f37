"""What a worker says of the remedies that it was asked to try: one answer for each, and in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnx_gate.gate import remedies
from onnx_gate.gate.options import Options
from onnx_gate.gate.progress import make_progress
from onnx_gate.gate.remedies import _Phase
from onnx_gate.manifest.load import load
from onnx_gate.remedy.candidate import Candidate
from onnx_gate.report.model import Counts, ManifestInfo, ModelResult, Report
from onnx_gate.report.model.remedy import Remedies
from onnx_gate.report.render.screen import make_console
from onnx_gate.workers.task import Outcome

MANIFEST = """version: 1
models:
  net: {model: "models.py:Net", inputs: {x: "float32[2]"}}
"""
BEFORE = "x = 1\ny = 2\n"
RED = ModelResult(name="net", verdict="diverged")


@pytest.fixture
def phase(tmp_path: Path) -> _Phase:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    (tmp_path / "models.py").write_text(BEFORE)
    report = Report(
        verdict="diverged",
        counts=Counts(),
        manifest=ManifestInfo(path="onnx-gate.yml", sha256="0" * 64),
        models=(RED,),
    )
    progress = make_progress(make_console(), 0, ci=True, github_actions=False, quiet=True)
    found = _Phase(
        load(tmp_path / "onnx-gate.yml"), Options(output=tmp_path / "out"), report, progress
    )
    found.read["models.py"] = BEFORE
    return found


def rewrite(text: str) -> Candidate:
    return Candidate(kind="source", texts={"models.py": text}, rewrite="len")


def told(phase: _Phase, candidates: list[Candidate], *messages: dict[str, Any]) -> Remedies:
    sent = tuple({"kind": "result", **each} for each in messages)
    outcome = Outcome(sent, "done", "", (), 1.0, 0)
    result = phase._with(RED, phase.manifest.models[0], candidates, outcome)
    assert result.remedies is not None
    return result.remedies


def test_there_is_one_answer_to_each_question_and_the_first_counts(phase: _Phase) -> None:
    candidates = [rewrite("x = 2\ny = 2\n"), rewrite("x = 1\ny = 3\n"), rewrite("z = 1\n")]
    no: dict[str, Any] = {"number": 1, "holds": False}
    yes: dict[str, Any] = {"number": 0, "holds": True, "compared": 3}
    others = [{"number": n, "holds": True} for n in (True, -1, 3, 1.0, "1", None)]
    found = told(phase, candidates, no, *[yes] * 1000, {**no, "holds": True}, *others)
    assert [each.edits[0].new for each in found.held] == [("x = 2",)]
    assert (found.tried, found.left) == (2, 0)


def test_what_is_not_told_in_time_was_not_tried(
    phase: _Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedies, "_TELLING_SECONDS", -1.0)
    found = told(phase, [rewrite("x = 2\n")], {"number": 0, "holds": True})
    assert (found.held, found.tried, found.left) == ((), 0, 1)


@pytest.mark.timeout(60)
def test_a_file_of_lines_that_are_all_alike_has_no_patch(phase: _Phase) -> None:
    text = phase.read["models.py"] = "#\n" * 200_000
    found = told(phase, [rewrite(f"x\n{text}y\n")], {"number": 0, "holds": True})
    (held,) = found.held
    assert (held.edits, held.patch, held.files) == ((), "", {})
    assert json.loads(found.model_dump_json())["tried"] == 1
