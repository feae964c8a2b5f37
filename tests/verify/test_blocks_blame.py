"""Who is to blame for a block that diverges, by the experiments that its piece alone allows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from onnx_gate.diagnose.blocks import locate
from onnx_gate.manifest.load import load
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

MODEL = """
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.last = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, image):
        for layer in self.layers:
            image = layer(image)
        return image
"""
MANIFEST = """
version: 1
suites: {few: {random: uniform, count: 1}}
models:
  net:
    model: model.py:Net
    weights: w.safetensors
    verify: blocks
    inputs: {image: {dtype: float32, shape: [2, 3, 6, 6], range: [0, 1.0e-20]}}
    suites: [few]
"""


@pytest.mark.slow
def test_a_fusion_that_is_wrong_inside_of_a_block_is_the_optimisers(tmp_path: Path) -> None:
    # Folded into the convolution, the norm's scale makes its weights overflow.
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    names: dict[str, type[torch.nn.Module]] = {}
    exec(MODEL, names)
    torch.manual_seed(0)
    state = names["Net"]().state_dict()
    large = {
        "layers.1.conv.weight": 1e20,
        "layers.1.norm.weight": 1e20,
        "layers.1.last.weight": 1e-20,
    }
    save_file({n: t * large.get(n, 1.0) for n, t in state.items()}, tmp_path / "w.safetensors")
    spec = load(tmp_path / "onnx-gate.yml").models[0]
    result = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None, locate=locate)
    assert result.verdict == "diverged", result.error
    assert {c.block for c in result.checks if c.verdict == "diverged" and c.block} == {"layers.1"}
    found = result.diagnosis
    assert found is not None
    assert (found.blame, found.fused_by) == ("optimiser", "ConvBNFusion"), found.evidence
    assert [each.kind for each in found.evidence if each.decisive] == ["without an optimiser"]
    assert found.node is None
