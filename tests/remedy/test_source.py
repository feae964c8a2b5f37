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
STATES = '''\
import torch
from torch import nn


class Reused(nn.Module):
    """A side that refuses what the other is for."""

    def __init__(self):
        super().__init__()
        self.near, self.far = nn.Embedding(10, 4), nn.Embedding(40, 4)

    def forward(self, ids):
        return self.near(ids) if ids.max() < 10 else self.far(ids)


class Counted(nn.Module):
    """A state that forward alone reads and writes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.ones(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        self.level.mul_(0.5).add_(x.mean(0))
        return x + self.level * self.calls


class Leaky(nn.Module):
    """A state that is read elsewhere too: with forward's own the answers are others."""

    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.ones(6))

    def forward(self, x):
        y = x * self.decay()
        self.level = self.level * 0.5 + y.mean(0)
        return y

    def decay(self):
        return self.level + 1
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
  reused: {model: "states.py:Reused", inputs: {ids: {dtype: int64, shape: [batch], range: [0, 39]}}}
  counted: {model: "states.py:Counted", inputs: {x: "float32[batch, 6]"}}
  leaky: {model: "states.py:Leaky", inputs: {x: "float32[batch, 6]"}}
  sharp: {model: "models.py:Sharp", inputs: {x: "float32[batch, 3, 9]"}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "models.py").write_text(MODELS)
    (folder / "parts.py").write_text(PARTS)
    (folder / "states.py").write_text(STATES)
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

    kept = [(name, red[name].remedies) for name in ("reused", "counted", "leaky")]
    assert [(name, [h.rewrite for h in r.held]) for name, r in kept if r is not None] == [
        ("reused", ["cond"]),
        ("counted", ["state"]),
        ("leaky", []),
    ]
    assert all(r is not None and r.tried for _, r in kept)

    # As the patches say, with the import that they need, and nothing else.
    here = "y = torch.where(x.sum() > 0, x * 2, x - 1)"
    assert (project / "models.py").read_text() == MODELS.replace(
        "y = x * 2 if x.sum() > 0 else x - 1", here
    ).replace("import torch.nn.functional", "import torch\nimport torch.nn.functional")
    assert (project / "parts.py").read_text() == PARTS_AFTER
    taken = "calls: {dtype: int64, shape: [], range: [0, 2]}, level: {dtype: float32, shape: [6]}"
    entry = 'counted: {model: "states.py:Counted", inputs: {x: "float32[batch, 6]"'
    manifest = (project / "onnx-gate.yml").read_text()
    assert manifest == MANIFEST.replace(entry, f"{entry}, {taken}")

    green = {each.name: each.verdict for each in run(project, "--remedies", "0").models}
    still = {name for name, verdict in green.items() if verdict != "pass"}
    assert still == {"sharp", "leaky"}


def test_a_red_model_that_is_not_required_has_remedies_as_well(tmp_path: Path) -> None:
    entry = 'chosen: {model: "models.py:Chosen", required: false, inputs: {x: "float32[batch, 6]"}}'
    head = MANIFEST.partition("  chosen")[0]
    # One that passes beside it, so that the run does as well.
    plain = 'plain: {model: "torch.nn:Tanh", inputs: {input: "float32[batch, 6]"}}'
    for name, text in {
        "models.py": MODELS,
        "parts.py": PARTS,
        "onnx-gate.yml": f"{head}  {entry}\n  {plain}\n",
    }.items():
        (tmp_path / name).write_text(text)
    report = run(tmp_path, "--remedies", "20")
    assert report.verdict == "pass"
    remedies = {model.name: model.remedies for model in report.models}
    assert remedies["plain"] is None
    assert remedies["chosen"] is not None
    assert [each.rewrite for each in remedies["chosen"].held] == ["where"]
