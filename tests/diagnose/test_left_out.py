"""A model that could not be looked into is told apart from one that was, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from tests.support.gate import gate

MODEL = """
import os
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.verifying = os.getpid()

    def forward(self, x):
        if FRAGILE and os.getpid() != self.verifying:
            os._exit(7)
        y = self.body(x)
        return y * 1.01 if torch.compiler.is_exporting() else y
"""
MANIFEST = """
version: 1
suites: {one: {random: normal, count: 1}}
models:
  scaled:
    model: model.py:Scaled
    inputs: {x: "float32[2, 64]"}
    suites: [one]
    memory: MEMORY
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("memory", "looked_into"), [("900MiB", False), ("8GiB", True)])
def test_a_diagnosis_that_is_left_out_says_why(
    tmp_path: Path, memory: str, looked_into: bool
) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("FRAGILE", "False"))
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST.replace("MEMORY", memory))
    done = gate("run", cwd=tmp_path)
    [model] = read_report(tmp_path / "onnx-gate-report" / "report.json").models
    assert model.verdict == "diverged", done.stdout
    assert model.diagnosis is not None
    assert (model.diagnosis.blame == "undecided") is not looked_into
    summary = (tmp_path / "onnx-gate-report" / "report.md").read_text()
    assert ("not looked into" in model.diagnosis.note) is not looked_into
    assert ("raise its memory" in summary) is not looked_into
    assert ("raise its memory" in done.stdout) is not looked_into


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_diagnosis_that_dies_says_so_where_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("FRAGILE", "True"))
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST.replace("MEMORY", "8GiB"))
    done = gate("run", cwd=tmp_path)
    [model] = read_report(tmp_path / "onnx-gate-report" / "report.json").models
    assert model.verdict == "diverged", done.stdout
    assert model.diagnosis is not None
    assert "exit status 7" in model.diagnosis.note
    assert "exit status 7" in (tmp_path / "onnx-gate-report" / "report.md").read_text()
