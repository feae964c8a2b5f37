"""What forward writes is no wrong weight to an audit, as it is none to a run."""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from onnx_gate.audit.beyond import wrong_weights
from onnx_gate.audit.edit import CHANGED, Edit
from onnx_gate.manifest import Waiver
from onnx_gate.manifest.load import load
from onnx_gate.verify.build import build
from onnx_gate.verify.context import Context
from onnx_gate.verify.exporting import export_prepared
from onnx_gate.verify.inspect.altered import altered_by
from onnx_gate.verify.inspect.exact import exact_weights
from onnx_gate.verify.prepare import prepare
from onnx_gate.verify.verify import checker_of

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
    model: models.py:Writes
    inputs: {x: "float32[n, 6]"}
    dims: {n: [8, 16, 24]}
"""


def test_what_forward_writes_is_no_wrong_weight_of_a_fault(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    [spec] = load(tmp_path / "onnx-gate.yml").models
    context = Context(workspace=tmp_path, folder=tmp_path / "export")
    prepared = prepare(spec, context, build(spec, tmp_path).module)
    exported, after = export_prepared(spec, context, prepared)
    checker = checker_of(spec, context, after, exported, None)
    fault = {f"last{CHANGED}": np.full(6, 3, np.float32)}
    assert wrong_weights(Edit("", tensors=fault), checker) == ""
    fault = {f"linear.bias{CHANGED}": np.full(3, 3, np.float32)}
    assert "linear.bias" in wrong_weights(Edit("", tensors=fault), checker)
    rounded = after.eager.module.linear.weight.detach().half().float().numpy()
    fault = {f"linear.weight{CHANGED}": rounded}
    assert wrong_weights(Edit("", tensors=fault), checker) == ""
    day = datetime.date(2026, 1, 1)
    altered = partial(altered_by, after.eager, after.example)
    asked = exported.exporter, None, altered, day
    said = wrong_weights(Edit("", tensors=fault), checker, exact_weights(spec, *asked))
    assert "linear.weight went through float16" in said
    # Nor where whatever the cases show is accepted, which a waiver of certain cases does not.
    for check, until, exact in (
        ("*", day, False),
        ("*", datetime.date.min, True),
        ("a/*", day, True),
    ):
        waived = replace(spec, waivers=(Waiver(check, until, "shipped in 16 bits"),))
        assert (exact_weights(waived, *asked) is not None) == exact
