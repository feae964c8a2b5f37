"""Experts that are one parameter, block by block: what is chosen is read, and all is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import save_file

from onnx_gate.diagnose.blocks import locate
from onnx_gate.manifest.load import load
from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.blocks import skeleton as skeletons
from onnx_gate.verify.blocks.need import Flow, Load, Need
from onnx_gate.verify.blocks.skeleton import build_skeleton
from onnx_gate.verify.blocks.staged import Staged
from onnx_gate.verify.context import Context
from onnx_gate.verify.reference.widened import Widened
from onnx_gate.verify.verify import verify

MODEL = '''
import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    """Six, of which a token has two; the last is never among them."""

    def __init__(self, fault=""):
        super().__init__()
        self.fault = fault
        self.gate = nn.Linear(16, 6)
        self.up = nn.Parameter(torch.randn(6, 16, 24) * 0.2)
        self.down = nn.Parameter(torch.randn(6, 24, 16) * 0.2)
        self.gate.bias.data[5] = -1000.0

    def forward(self, x):
        rows = x.flatten(0, 1)
        shares, chosen = self.gate(rows).softmax(-1).topk(2, -1)
        at = chosen.flatten()
        if self.fault and torch.compiler.is_exporting():
            at = torch.tensor([0, 2, 1, 3, 4, 5])[at]
        many = rows.repeat_interleave(2, 0).unsqueeze(1)
        made = torch.bmm(F.gelu(torch.bmm(many, self.up[at])), self.down[at]).squeeze(1)
        return (made * shares.reshape(-1, 1)).unflatten(0, (-1, 2)).sum(1).view_as(x)


class Layer(nn.Module):
    def __init__(self, fault=""):
        super().__init__()
        self.norm, self.mix, self.experts = nn.LayerNorm(16), nn.Linear(16, 16), Experts(fault)

    def forward(self, x):
        return x + self.experts(self.mix(self.norm(x)))


class Mixture(nn.Module):
    def __init__(self, fault=""):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Layer(fault if n == 1 else "") for n in range(2))
        self.head = nn.Linear(16, 50)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
'''


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeletons, "LEAST_ROWS", 0)


def _module(folder: Path) -> torch.nn.Module:
    (folder / "model.py").write_text(MODEL)
    names: dict[str, Any] = {}
    exec(compile(MODEL, "mixture.py", "exec"), names)
    torch.manual_seed(3)
    module: torch.nn.Module = names["Mixture"]().eval()
    for parameter in module.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return module


def project(folder: Path, *, more: str = "", **kwargs: object) -> ModelSpec:
    """Write a mixture whose checkpoint is in bfloat16; return its entry."""
    state = {name: each.bfloat16() for name, each in _module(folder).state_dict().items()}
    save_file(state, folder / "w.safetensors")
    (folder / "onnx-gate.yml").write_text(
        f"""
version: 1
models:
  mixture:
    model: model.py:Mixture
    kwargs: {json.dumps(kwargs)}
    weights: w.safetensors
    verify: blocks
    inputs: {{ids: {{dtype: int64, shape: [batch, seq], range: [0, 49]}}}}
    dims: {{batch: [1, 2], seq: [3]}}
    {more}
"""
    )
    return load(folder / "onnx-gate.yml").models[0]


def committed(folder: Path, wrong: int | None) -> ModelSpec:
    """Write a mixture whose committed file has a wrong row in an expert of the second layer."""
    module = _module(folder)
    if wrong is not None:
        module.get_parameter("layers.1.experts.down").data[wrong, 7] += 0.5
    sizes = {"ids": {0: "batch", 1: "seq"}}
    torch.onnx.export(
        module,
        (torch.arange(6).view(2, 3),),
        folder / "m.onnx",
        dynamic_shapes=sizes,
        verbose=False,
    )
    return project(folder, more="onnx: m.onnx")


def verified(folder: Path, spec: ModelSpec) -> ModelResult:
    return verify(spec, Context(folder, folder / "out"), lambda _: None, locate=locate)


def blamed(result: ModelResult) -> set[str]:
    bad = {str(c.block) for c in result.checks if c.verdict == "diverged" and c.block}
    return {block for block in bad if "+" not in block}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "swapped"])
def test_experts_that_an_export_swaps_are_found_in_their_layer(tmp_path: Path, fault: str) -> None:
    result = verified(tmp_path, project(tmp_path, fault=fault))
    assert result.verdict == ("diverged" if fault else "pass"), result.error
    assert blamed(result) == ({"layers.1"} if fault else set())
    # Rows are taken of the checkpoint as it is, and no copy of all is made before.
    proto = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False)
    for part in ("up", "down"):
        name = f"layers.0.experts.{part}.stored"
        (rows,) = (node for node in proto.graph.node if name in node.input)
        (cast,) = (node for node in proto.graph.node if rows.output[0] in node.input)
        assert (rows.op_type, cast.op_type) == ("GatherND", "Cast")
    # The one that nothing has chosen is the checkpoint's.
    assert result.weights is not None
    assert result.weights.all_known


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [None, 2, 5])
def test_a_wrong_row_of_an_expert_is_named_whether_it_is_chosen_or_not(
    tmp_path: Path, wrong: int | None
) -> None:
    result = verified(tmp_path, committed(tmp_path, wrong))
    assert result.verdict == ("pass" if wrong is None else "diverged"), result.error
    # The last is chosen by no input, and no answer is another.
    assert blamed(result) == ({"layers.1"} if wrong == 2 else set())
    said = [f.message for f in result.findings if "layers.1.experts.down" in f.message]
    assert len(said) == (wrong is not None)
    assert all(f"row {wrong} of 6" in message for message in said)


def test_a_layer_reads_the_experts_that_it_chooses_and_no_others(tmp_path: Path) -> None:
    skeleton = build_skeleton(project(tmp_path), tmp_path)
    layer = skeleton.module.get_submodule("layers.0")
    names = skeleton.named_below("layers.0")
    up = skeleton.parameters["layers.0.experts.up"]
    x = torch.randn(1, 4, 16)
    with torch.no_grad(), skeleton.loaded(names):
        own = layer.get_parameter("experts.up")
        assert isinstance(own, Widened)
        # A layer of torch's computes with all of its weight.
        assert not isinstance(layer.get_parameter("mix.weight"), Widened)
        made = layer(x)
        assert own.read is None
    assert torch.equal(made, _module(tmp_path).get_submodule("layers.0")(x))
    assert skeleton.lying(up) == up.stored.nbytes == up.nbytes // 2
    with torch.no_grad(), skeleton.loaded(names):
        _ = own + 0, layer.get_parameter("experts.up") + 0
    assert skeleton.lying(up) == up.nbytes


def test_what_is_expected_of_memory_counts_the_rows_that_are_taken(tmp_path: Path) -> None:
    skeleton = build_skeleton(project(tmp_path), tmp_path)
    staged = Staged(skeleton.module, ("layers.0",))
    ids = torch.arange(12).view(3, 4)
    loaded = skeleton.loaded(tuple(skeleton.parameters))
    streamed = staged.streamed(lambda path: skeleton.loaded(skeleton.named_below(path)))
    with torch.no_grad(), loaded, streamed:
        skeleton.module(ids)
    up = skeleton.parameters["layers.0.experts.up"]
    # Twelve tokens with two of six experts each: four times the stack.
    assert staged.inside["layers.0"] == 4 * up.nbytes
    loads = {"layers.0": Load(up.nbytes)}
    taken, little = (Need.of(loads, (), 0, [Flow(1, 1, n)]) for n in (4 * up.nbytes, 1))
    assert taken.values - little.values > 4 * up.nbytes
