"""Masks that no random bits make: nothing masked, and padding, in real models by default."""

from __future__ import annotations

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from tests.support.gate import gate

MODELS = """
import torch
from torch import nn

class Pooled(nn.Module):
    '''A mean over what counts, twice as large where everything does.'''
    def __init__(self, whole=2.0):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.whole = whole
    def forward(self, x, attention_mask):
        kept = attention_mask.unsqueeze(-1).to(x.dtype)
        mean = (self.linear(x) * kept).sum(1) / kept.sum(1)
        return torch.where(attention_mask.bool().all(), self.whole * mean, mean)

class Last(nn.Module):
    '''The last position that counts; the file takes the number of those that do for its index.'''
    def __init__(self, by_number=False):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.by_number = by_number
    def forward(self, x, attention_mask):
        counts = attention_mask.to(torch.int64)
        index = (counts * torch.arange(1, counts.shape[1] + 1)).amax(1)
        if self.by_number:
            index = counts.sum(1)
        index = (index - 1).clamp_min(0)
        return self.linear(x)[torch.arange(x.shape[0]), index]

def _export(module, example, path):
    shapes = {name: {0: "batch", 1: "seq"} for name in example}
    torch.onnx.export(
        module.eval(), (), kwargs=example, dynamo=True, verbose=False, dynamic_shapes=shapes
    ).save(str(path))

def _of(module, other, example, path):
    other.load_state_dict(module.state_dict())
    _export(other, example, path)

def never_whole(module, example, path):
    _of(module, Pooled(whole=1.0), example, path)

def by_number(module, example, path):
    _of(module, Last(by_number=True), example, path)

def right(module, example, path):
    _export(module, example, path)
"""
ENTRY = """
  {name}:
    model: "models.py:{model}"
    inputs:
      x: "float32[batch, seq, 8]"
      attention_mask: {{dtype: int64, shape: [batch, seq], range: [0, 1]}}
    export: {{exporter: "models.py:{exporter}"}}
"""
NAMES = {
    "pooled": ("Pooled", "never_whole"),
    "pooled-twin": ("Pooled", "right"),
    "last": ("Last", "by_number"),
    "last-twin": ("Last", "right"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("masks")
    (folder / "models.py").write_text(MODELS)
    entries = "".join(
        ENTRY.format(name=name, model=model, exporter=exporter)
        for name, (model, exporter) in NAMES.items()
    )
    (folder / "onnx-gate.yml").write_text("version: 1\nmodels:" + entries)
    run = gate("run", "--output", "out", "--no-cache", "--remedies", "0", cwd=folder)
    assert run.returncode == 1, run.stderr
    return {m.name: m for m in read_report(folder / "out" / "report.json").models}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["pooled", "last"])
def test_what_is_wrong_for_a_kind_of_padding_is_seen(
    models: dict[str, ModelResult], name: str
) -> None:
    typical = {
        check.case
        for check in models[name].checks
        if check.verdict == "diverged" and check.suite == "typical"
    }
    assert models[name].verdict == "diverged"
    assert typical
    assert models[f"{name}-twin"].verdict == "pass", models[f"{name}-twin"].findings
