"""Blocks of committed files whose ends lie inside of an operator: judged together with what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import save_file

from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

HIDDEN = """
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = nn.LayerNorm(16) if norm else nn.Identity()
        self.up, self.down = nn.Linear(16, 512), nn.Linear(512, 16)

    def forward(self, x, scale):
        x = self.norm(x)
        return x * SHARE + scale * torch.sin(self.down(torch.tanh(self.up(x))) * 256)


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(NORMS) for _ in range(COUNT))
        if HEAD:
            self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        scale = torch.cos(x.mean(-1, keepdim=True))
        for layer in self.layers:
            x = layer(x, scale)
        return self.out(self.norm(x)) if HEAD else F.layer_norm(x, (16,))
"""


def fused(
    folder: Path, share: float = 1.0, norms: bool = False, count: int = 2, head: bool = True
) -> ModelResult:
    """Verify a model by a file that ONNX Runtime has fused the norms of with the sums before them."""
    names: dict[str, Any] = {}
    constants = f"SHARE, NORMS, COUNT, HEAD = {share}, {norms}, {count}, {head}\n"
    source = HIDDEN.replace("\n\n\nclass Layer", f"\n\n{constants}\n\nclass Layer")
    exec(compile(source, "hidden.py", "exec"), names)
    torch.manual_seed(0)
    module = names["Hidden"]().eval()
    for part in module.modules():
        if isinstance(
            part, torch.nn.LayerNorm
        ):  # of those that are alike no one is known whose they are
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
    (folder / "hidden.py").write_text(source)
    save_file(module.state_dict(), folder / "w.safetensors")
    example, sizes = (torch.randn(2, 5, 16),), {"x": {0: "batch"}}
    torch.onnx.export(module, example, folder / "plain.onnx", dynamic_shapes=sizes, verbose=False)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "m.onnx")
    ort.InferenceSession(str(folder / "plain.onnx"), options)
    used = [node.op_type for node in onnx.load(folder / "m.onnx").graph.node]
    assert used.count("SkipLayerNormalization") == (count if norms else 1)
    path = folder / "onnx-gate.yml"
    path.write_text(
        "version: 1\nmodels:\n  m: {model: hidden.py:Hidden, weights: w.safetensors, onnx: m.onnx, "
        'verify: blocks, inputs: {x: "float32[batch, 5, 16]"}}\n'
    )
    return verify(load(path).models[0], Context(folder, folder / "out"), lambda _: None)


STACKED = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.key, self.out = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        y = self.norm(x)
        key = self.key(y + 100) - self.key(torch.full_like(y, 100))
        return x + self.out(torch.tanh(key)), torch.stack((key, key.flip(-1)))


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        keys = []
        for layer in self.layers:
            x, key = layer(x)
            keys.append(key)
        return self.head(x), torch.stack(keys)
"""


def stacked(folder: Path, wrong: bool) -> ModelResult:
    """Verify a model by TorchScript's file, which stacks what the layers return in one node at the end."""
    names: dict[str, Any] = {}
    exec(compile(STACKED, "stacked.py", "exec"), names)
    torch.manual_seed(0)
    module = names["Stacked"]().eval()
    (folder / "stacked.py").write_text(STACKED)
    save_file(module.state_dict(), folder / "w.safetensors")
    sizes, path = {"x": {0: "batch"}}, folder / "m.onnx"
    example = (torch.randn(2, 5, 64),)
    torch.onnx.export(module, example, path, input_names=["x"], dynamic_axes=sizes, dynamo=False)
    if wrong:  # the keys of the second layer, on their way out alone
        proto = onnx.load(path)
        for node in proto.graph.node:
            if node.op_type == "Unsqueeze" and node.name.startswith("/layers.1/"):
                scaled = onnx.helper.make_node("Mul", [node.input[0], "scale"], ["scaled"])
                node.input[0] = "scaled"
                break
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(1.01, np.float32), "scale")
        )
        proto.graph.node.insert(list(proto.graph.node).index(node), scaled)
        onnx.save(proto, path)
    (folder / "onnx-gate.yml").write_text(
        "version: 1\nmodels:\n  m: {model: stacked.py:Stacked, weights: w.safetensors, onnx: m.onnx, "
        'verify: blocks, inputs: {x: "float32[batch, 5, 64]"}}\n'
    )
    spec = load(folder / "onnx-gate.yml").models[0]
    return verify(spec, Context(folder, folder / "out"), lambda _: None)


def judged(result: ModelResult) -> set[str]:
    return {check.output for check in result.checks if check.block}


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.125])
def test_a_block_whose_end_is_in_no_value_is_judged_with_the_next(
    tmp_path: Path, share: float
) -> None:
    """What is added to little of the input is near to the sum."""
    result = fused(tmp_path, share)
    assert result.verdict == "pass"
    assert {"layers.0", "norm", "out"} <= judged(result)
    assert "layers.1" not in judged(result)


@pytest.mark.slow
def test_blocks_in_a_row_whose_ends_are_hidden_are_judged_with_the_rounding_of_all(
    tmp_path: Path,
) -> None:
    result = fused(tmp_path, norms=True, count=3)
    assert result.verdict == "pass"
    assert {"norm", "out"} <= judged(result)
    assert judged(result).isdisjoint({"layers.0", "layers.1", "layers.2"})


@pytest.mark.slow
def test_a_last_block_whose_end_is_hidden_is_judged_with_the_outputs(tmp_path: Path) -> None:
    result = fused(tmp_path, head=False)
    assert result.verdict == "pass"
    assert "layers.0" in judged(result)
    assert "layers.1" not in judged(result)


@pytest.mark.slow
def test_what_layers_return_to_be_stacked_is_judged_with_their_rounding(tmp_path: Path) -> None:
    """The file has it in no value of theirs: the piece behind the last layer computes it once more."""
    result = stacked(tmp_path, wrong=False)
    assert result.verdict == "pass", result.error
    assert {"layers.0", "layers.1"} <= judged(result)


@pytest.mark.slow
def test_what_layers_return_to_be_stacked_is_found_wrong_at_the_end(tmp_path: Path) -> None:
    result = stacked(tmp_path, wrong=True)
    wrong = {c.output for c in result.checks if c.verdict == "diverged"}
    assert wrong == {"1"}
