"""Sizes that PyTorch itself refuses and the file takes: said, and red only where ``dims`` names them."""

from __future__ import annotations

import pytest

from onnx_gate.findings import codes
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from tests.support.gate import gate

MODELS = """
import torch
from torch import nn

class Lines(nn.Module):
    def __init__(self, faulty=False):
        super().__init__()
        self.columns = nn.Sequential(
            nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Conv2d(4, 6, (8, 1))
        )
        self.read = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 7)
        self.faulty = faulty

    def forward(self, image):
        y = self.read(self.columns(image)[:, :, 0].transpose(1, 2))[0]
        if self.faulty and torch.compiler.is_compiling():
            y = y.flip(1)
        return self.head(y).log_softmax(-1)

class Couples(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        if not torch.compiler.is_compiling() and x.shape[0] % 2 == 1:
            raise ValueError("neighbours come in pairs")
        return self.fc(x)

class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        if not torch.compiler.is_compiling() and (x == 0).all():
            raise ValueError("no share is there")
        return self.fc(x)
"""
LINES = 'model: "models.py:Lines", inputs: {image: "float32[batch, 1, 32, width]"}'
COUPLES = 'model: "models.py:Couples", inputs: {x: "float32[batch, 6]"}'
MANIFEST = f"""
version: 1
models:
  lines: {{{LINES}}}
  wrong: {{{LINES}, args: [true]}}
  narrow: {{{LINES}, dims: {{width: [2, 8]}}}}
  couples: {{{COUPLES}}}
  shares: {{model: "models.py:Shares", inputs: {{x: "float32[batch, 6]"}}}}
  odd: {{{COUPLES}, dims: {{batch: [2, 7]}}}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("refused")
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(MANIFEST)
    run = gate("run", "--output", "out", "--no-cache", "--remedies", "0", cwd=folder)
    assert run.returncode == 1, run.stderr
    return {m.name: m for m in read_report(folder / "out" / "report.json").models}


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestSizesThatPyTorchRefuses:
    def test_lines_of_text_are_green_and_their_wrong_twin_is_not(
        self, models: dict[str, ModelResult]
    ) -> None:
        assert models["lines"].verdict == "pass"
        assert {32, 64} <= {c.sizes["width"] for c in models["lines"].checks}
        # What an LSTM's shapes are worked out by is nothing that the export takes for granted.
        assert not any(codes.OG116.among(models["lines"].findings))
        assert models["wrong"].verdict == "diverged"

    def test_a_refusal_is_said_once_and_values_are_compared_elsewhere(
        self, models: dict[str, ModelResult]
    ) -> None:
        couples = models["couples"]
        assert couples.verdict == "pass"
        (said,) = codes.OG409.among(couples.findings)
        assert said.severity == "warning"
        assert "at batch=1, batch=7, batch=17 nothing was compared" in said.message
        assert "ValueError: neighbours come in pairs" in said.message
        edges = {(c.verdict, c.sizes["batch"]) for c in couples.checks if c.suite == "edges"}
        assert edges == {("pass", 2)}

    def test_refused_values_are_a_note_where_every_size_was_compared(
        self, models: dict[str, ModelResult]
    ) -> None:
        assert models["shares"].verdict == "pass"
        (note,) = codes.OG409.among(models["shares"].findings)
        assert note.severity == "note"
        assert "nothing was compared" not in note.message

    @pytest.mark.parametrize(("name", "size"), [("narrow", "width=2"), ("odd", "batch=7")])
    def test_a_size_that_the_manifest_names_is_a_divergence(
        self, models: dict[str, ModelResult], name: str, size: str
    ) -> None:
        wrong = {c.case for c in models[name].checks if c.verdict == "diverged"}
        assert models[name].verdict == "diverged"
        assert wrong
        assert all(size in case for case in wrong)
