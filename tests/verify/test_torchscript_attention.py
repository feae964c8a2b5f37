"""PyTorch's own attention through the TorchScript exporter, whose trace meets its fused fast path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from onnx_gate.manifest import ExportSpec, InputSpec, ModelSpec
from onnx_gate.report.io import read_report
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.export import export
from tests.support.gate import gate

MODELS = """
import torch
from torch import nn


def encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)


def by_hand(module, example, path):
    torch.onnx.export(
        module, tuple(example.values()), str(path), dynamo=False, input_names=list(example),
        dynamic_axes={name: {0: "batch"} for name in example},
    )
"""

MANIFEST = """
version: 1
defaults: {export: {exporter: torchscript}}
models:
  encoder:
    model: models.py:encoder
    inputs: {src: "float32[batch, 5, 16]"}
  attention:
    model: models.py:Attention
    inputs: {x: "float32[batch, 5, 16]"}
  by-hand:
    model: models.py:encoder
    inputs: {src: "float32[batch, 5, 16]"}
    export: {exporter: models.py:by_hand}
"""


def test_attention_is_traced_and_passes(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    finished = gate("run", "--output", "out", cwd=tmp_path)
    models = {m.name: m for m in read_report(tmp_path / "out" / "report.json").models}
    assert [m.verdict for m in models.values()] == ["pass"] * 3, finished.stdout
    # The outputs of a tuple have numbers for names, which no value of a trace may have.
    assert {check.output for check in models["attention"].checks} >= {"0", "1"}


def test_the_fast_path_is_as_it_was_after_an_export(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
    eager = Eager(module.eval(), ("src",))
    spec = ModelSpec(
        name="encoder",
        model="models.py:encoder",
        inputs={"src": InputSpec("float32", (2, 5, 16), None)},
        outputs=None,
        export=ExportSpec("torchscript", None),
    )
    example = {"src": np.random.default_rng(0).standard_normal((2, 5, 16)).astype(np.float32)}
    for enabled in (True, False):
        torch.backends.mha.set_fastpath_enabled(enabled)
        try:
            exported = export(spec, eager, example, tmp_path, tmp_path / str(enabled))
            assert torch.backends.mha.get_fastpath_enabled() is enabled
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        assert any(node.op_type == "Softmax" for node in exported.proto.graph.node)
