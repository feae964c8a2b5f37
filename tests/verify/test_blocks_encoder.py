"""torch's own encoder and decoder are divided at their layers, which hand on masks and padded rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from onnx_gate.manifest.load import load
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)

    def forward(self, src, tgt, padding):
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.both(src, tgt, tgt_mask=causal, src_key_padding_mask=padding, tgt_is_causal=True)
"""

MANIFEST = """
version: 1
models:
  net:
    model: model.py:Net
    weights: w.safetensors
    verify: blocks
    inputs:
      src: float32[2, seq, 16]
      tgt: float32[2, seq, 16]
      padding: bool[2, seq]
    dims: {seq: [5]}
    suites: [{random: normal, count: 1}, edges]
"""


@pytest.mark.slow
def test_an_encoder_and_a_decoder_are_divided_at_their_layers(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    names: dict[str, type[torch.nn.Module]] = {}
    exec(MODEL, names)
    torch.manual_seed(0)
    save_file(names["Net"]().state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    spec = load(tmp_path / "onnx-gate.yml").models[0]
    result = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None)
    assert result.verdict == "pass", result.error
    alone = {check.block for check in result.checks if " + " not in check.block} - {""}
    layers = {f"both.{half}.layers.{n}" for half in ("encoder", "decoder") for n in range(2)}
    assert alone == layers | {"both.encoder.norm", "both.decoder.norm"}
    assert any("padding" in check.case for check in result.checks)
