"""Neighbouring blocks run together: what an optimiser makes of their border, which neither shows alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.blocks.need import Flow, Load, Need
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, image):
        return self.last(self.norm(self.conv(image)))
"""


def verified(folder: Path, scale: float) -> ModelResult:
    """Verify a net of which the norm scales up by so much what the convolution has scaled up as well."""
    (folder / "model.py").write_text(MODEL)
    (folder / "onnx-gate.yml").write_text(
        f"""
version: 1
suites: {{few: {{random: uniform, count: 1}}}}
models:
  net:
    model: model.py:Net
    weights: w.safetensors
    verify: blocks
    inputs: {{image: {{dtype: float32, shape: [2, 3, 6, 6], range: [0, {1 / scale:.1e}]}}}}
    suites: [few]
"""
    )
    names: dict[str, object] = {}
    exec(MODEL, names)
    torch.manual_seed(0)
    state = names["Net"]().state_dict()  # type: ignore[operator]
    state["conv.weight"] = state["conv.weight"] * scale
    state["norm.weight"] = state["norm.weight"] * scale
    state["last.weight"] = state["last.weight"] / scale
    save_file(state, folder / "w.safetensors")
    spec = load(folder / "onnx-gate.yml").models[0]
    return verify(spec, Context(folder, folder / "out"), lambda _: None)


@pytest.mark.slow
def test_neighbours_that_agree_are_run_together_once(tmp_path: Path) -> None:
    result = verified(tmp_path, 1.0)
    assert result.verdict == "pass", result.error
    pairs = [check for check in result.checks if " + " in check.block]
    assert [(c.block, c.output) for c in pairs] == [
        ("conv + norm", "norm"),
        ("norm + last", "last"),
    ]
    assert all(check.case.endswith("/joined") and check.compared for check in pairs)


@pytest.mark.slow
def test_what_is_wrong_across_a_border_alone_is_the_optimisers(tmp_path: Path) -> None:
    # Folded into the convolution, the norm's scale makes its weights overflow.
    result = verified(tmp_path, 1e20)
    assert result.verdict == "diverged", result.error
    wrong = {check.block for check in result.checks if check.verdict == "diverged"}
    assert wrong == {"conv + norm"}
    assert result.diagnosis is not None
    assert result.diagnosis.blame == "optimiser"
    assert "across the border of conv and norm" in result.diagnosis.cause


def test_what_is_expected_of_memory_counts_the_largest_pair() -> None:
    table, layer, other = Load(80 << 20, 80 << 20, 80 << 20), Load(30 << 20), Load(20 << 20)
    loads = {"embed": table, "layers.0": layer, "layers.1": other}
    flows = [Flow(1, 1)]
    alone = Need.of(loads, (), 0, flows)
    pairs = Need.of(loads, (table + layer, layer + other), 0, flows)
    # Of rows of a table there are two copies, of all else four.
    assert (alone.loaded, pairs.loaded) == (160 << 20, (160 + 120) << 20)
    assert (alone.block, pairs.block) == ("embed", "embed")
    assert pairs.peak > alone.peak
