"""Remedies in the source: red, rewritten in a copy, held, put in, green; none changes an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import Report
from tests.support.gate import gate

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = '''\
"""Models of a user."""

import torch.nn.functional as F
from torch import nn

from parts import Scale


class Chosen(nn.Module):
    def forward(self, x):
        y = x * 2 if x.sum() > 0 else x - 1  # by the sum
        return y.tanh()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        return self.scale(x)


class Sharp(nn.Module):
    """What is far away needs its float64: green with float32, and another answer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 2, 3)

    def forward(self, x):
        far = x.double() + 1e8
        return F.conv1d(far - 1e8, self.conv.weight.double()).float()
'''
PARTS = """\
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        if x.abs().max() > 1.5:
            return x / x.abs().max()
        return x
"""
PARTS_AFTER = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        return torch.where(x.abs().max() > 1.5, x / x.abs().max(), x)
"""
MANIFEST = """\
version: 1
suites: {few: {random: normal, count: 2}}
defaults: {suites: [few]}
models:
  chosen: {model: "models.py:Chosen", inputs: {x: "float32[batch, 6]"}}
  scaled: {model: "models.py:Scaled", inputs: {x: "float32[batch, 6]"}}
  sharp: {model: "models.py:Sharp", inputs: {x: "float32[batch, 3, 9]"}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "models.py").write_text(MODELS)
    (folder / "parts.py").write_text(PARTS)
    (folder / "onnx-gate.yml").write_text(MANIFEST)
    return folder


def run(folder: Path, *arguments: str) -> Report:
    done = gate("run", *arguments, cwd=folder)
    report = folder / "onnx-gate-report" / "report.json"
    assert report.exists(), done.stdout + done.stderr
    return read_report(report)


def test_a_rewrite_that_holds_is_put_in_and_one_that_changes_the_answer_is_not(
    project: Path,
) -> None:
    red = {model.name: model for model in run(project, "--remedies", "20", "--fix").models}
    assert all(model.verdict == "error" for model in red.values())
    chosen, scaled, sharp = (red[name].remedies for name in ("chosen", "scaled", "sharp"))
    assert chosen is not None
    assert chosen.held[0].rewrite == "where"
    assert (chosen.held[0].compared or 0) >= 6
    assert scaled is not None
    assert [each.rewrite for each in scaled.held] == ["where"]
    assert sharp is not None
    assert sharp.tried >= 3
    assert not sharp.held

    # As the patches say, with the import that they need, and nothing else.
    here = "y = torch.where(x.sum() > 0, x * 2, x - 1)"
    assert (project / "models.py").read_text() == MODELS.replace(
        "y = x * 2 if x.sum() > 0 else x - 1", here
    ).replace("import torch.nn.functional", "import torch\nimport torch.nn.functional")
    assert (project / "parts.py").read_text() == PARTS_AFTER
    assert (project / "onnx-gate.yml").read_text() == MANIFEST

    green = {each.name: each.verdict for each in run(project, "--remedies", "0").models}
    assert green == {"chosen": "pass", "scaled": "pass", "sharp": "error"}
