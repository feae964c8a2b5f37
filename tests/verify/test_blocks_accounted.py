"""What the weights of a committed file are, where its model is verified block by block."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import save_file

from onnx_gate.diagnose.blocks import locate
from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.context import Context
from onnx_gate.verify.inspect import made
from onnx_gate.verify.verify import verify
from tests.support.blocks_project import committed

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.dense = nn.Parameter(torch.randn(16)), nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.dense(F.rms_norm(x, (16,)) * (1 + self.scale)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""

MANIFEST = """
version: 1
models:
  net:
    model: model.py:Net
    weights: w.safetensors
    onnx: model.onnx
    verify: blocks
    inputs: {x: "float32[2, seq, 16]"}
    dims: {seq: [5]}
    suites: [{random: normal, count: 1}]
"""


def verified(folder: Path) -> ModelResult:
    spec = load(folder / "onnx-gate.yml").models[0]
    return verify(spec, Context(folder, folder / "out"), lambda _: None, locate=locate)


@pytest.mark.slow
def test_a_layer_that_a_file_leaves_out_is_said_to_be_missing(tmp_path: Path) -> None:
    committed(tmp_path, "dynamo", fault="skip")
    result = verified(tmp_path)
    assert result.diagnosis is not None
    assert result.diagnosis.cause.startswith("the file has no weight of layers.2: layers.2 and ")


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [False, True])
def test_a_node_is_named_by_the_module_of_the_users_model(tmp_path: Path, left_out: bool) -> None:
    """It is one of a block alone, or one of two that are judged together."""
    committed(tmp_path, "torchscript")
    proto = onnx.load(tmp_path / "model.onnx")
    layers = [[n for n in proto.graph.node if n.name.startswith(f"/layers.{i}/")] for i in range(3)]
    before, last = (layer[-1].output[0] for layer in layers[1:])
    for node in proto.graph.node:
        if left_out:
            node.input[:] = [before if name == last else name for name in node.input]
        elif node.name == "/layers.1/LayerNormalization":
            next(a for a in node.attribute if a.name == "epsilon").f = 0.01
    onnx.save(proto, tmp_path / "model.onnx")
    diagnosis = verified(tmp_path).diagnosis
    assert diagnosis is not None
    assert diagnosis.node is not None
    assert diagnosis.node.module == ("layers.2" if left_out else "layers.1")
    assert f" in {diagnosis.node.module}" in diagnosis.cause


@pytest.mark.slow
def test_what_blocks_compute_of_no_input_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    names: dict[str, type[torch.nn.Module]] = {}
    exec(MODEL, names)
    torch.manual_seed(0)
    net = names["Net"]().eval()
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        net,
        (torch.zeros(2, 3, 16),),
        path,
        dynamo=True,
        input_names=["x"],
        dynamic_shapes={"x": {1: "seq"}},
        verbose=False,
    )
    proto = onnx.load(path)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for node in [node for node in proto.graph.node if {*node.input} <= held.keys()]:
        assert node.op_type == "Add"
        one, other = (held[name] for name in node.input)
        proto.graph.initializer.append(numpy_helper.from_array(one + other, node.output[0]))
        proto.graph.node.remove(node)
    onnx.save(proto, path)
    # Room for what is made of scales, and not for the transposed weights beside them.
    monkeypatch.setattr(made, "_MOST_BYTES", 1000)
    weights = verified(tmp_path).weights
    assert weights is not None
    assert (weights.unknown, weights.made) == ((), 3)
