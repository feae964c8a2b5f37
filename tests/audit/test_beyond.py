"""What forward writes is no wrong weight to an audit, as it is none to a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_gate.audit.beyond import wrong_weights
from onnx_gate.audit.edit import CHANGED, Edit
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.load import load
from onnx_gate.verify.build import build
from onnx_gate.verify.context import Context
from onnx_gate.verify.exporting import export_prepared
from onnx_gate.verify.prepare import Prepared, prepare
from onnx_gate.verify.verify import _checker

pytestmark = pytest.mark.slow

MODELS = """
import torch
from torch import nn

class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.ones(6))
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        self.last.copy_(x.detach()[0])
        return self.linear(x)
"""
MANIFEST = """\
version: 1
models:
  net:
    model: models.py:{name}
    inputs: {{x: "float32[n, 6]"}}
    dims: {{n: [8, 16, 24]}}
"""


def started(name: str, folder: Path) -> tuple[ModelSpec, Context, Prepared]:
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(MANIFEST.format(name=name))
    [spec] = load(folder / "onnx-gate.yml").models
    context = Context(workspace=folder, folder=folder / "export")
    return spec, context, prepare(spec, context, build(spec, folder).module)


def test_what_forward_writes_is_no_wrong_weight_of_a_fault(tmp_path: Path) -> None:
    spec, context, prepared = started("Writes", tmp_path)
    exported, after = export_prepared(spec, context, prepared)
    checker = _checker(spec, context, after, exported, None)
    fault = {f"last{CHANGED}": np.full(6, 3, np.float32)}
    assert wrong_weights(Edit("", tensors=fault), checker) == ""
    fault = {f"linear.bias{CHANGED}": np.full(3, 3, np.float32)}
    assert "linear.bias" in wrong_weights(Edit("", tensors=fault), checker)
