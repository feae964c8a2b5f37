"""Weights that are mostly another's, or a part alone, where a stock layer's parameter is nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.weights import account
from tests.support.gate import run_twins

RANDOM = np.random.default_rng(0)


class Placed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pos = nn.Embedding(32, 8)
        self.experts = nn.ModuleList(nn.Linear(8, 16, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.pos(torch.arange(x.shape[1]))
        return sum(expert(x) for expert in self.experts)  # type: ignore[return-value]


def replaced(array: Array) -> Array:
    return np.concatenate((array[:10], RANDOM.normal(size=(22, 8)))).astype(np.float32)


FAULTS = {
    "right": ("pos", lambda a: a, ""),
    "rounded": ("experts.1", lambda a: a.astype(np.float16).astype(np.float32), ""),
    "random": (
        "experts.1",
        lambda a: RANDOM.normal(size=a.shape).astype(np.float32),
        "experts.1.weight: all of it by up to",
    ),
    "scaled": ("experts.1", lambda a: a * np.float32(1.2), "experts.1.weight: all of it by up to"),
    "rows": ("pos", replaced, "pos.weight: row 10, 11, 12 and 19 more of 32 by up to"),
    "cut": ("pos", lambda a: a[:16], "pos.weight: row 16, 17, 18 and 13 more of 32 nowhere in the"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_stands_in_place_of_a_stock_layers_parameter_is_named(
    tmp_path: Path, fault: str
) -> None:
    torch.manual_seed(0)
    module, path = Placed().eval(), tmp_path / "m.onnx"
    sizes = {"x": {0: "batch", 1: "seq"}}
    example = (torch.randn(2, 5, 8),)
    torch.onnx.export(module, example, path, input_names=["x"], dynamic_axes=sizes, dynamo=False)
    proto = onnx.load(path)
    part, change, words = FAULTS[fault]
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        held = [name for name in node.input if name in tensors]
        if node.name.startswith(f"/{part}/") and held:
            (name,) = held
            array = change(numpy_helper.to_array(tensors[name]))
            tensors[name].CopyFrom(numpy_helper.from_array(array, "w"))
            node.input[:] = ["w" if each == name else each for each in node.input]
    weights, findings = account(proto, tmp_path, module)
    assert bool(weights.unknown) == (fault != "right")
    assert [finding.severity for finding in findings] == (["warning"] if words else [])
    assert all(words in finding.message for finding in findings)
    assert all(each.parameter == f"{part}.weight" for each in weights.unknown)


FIXED = """
class Fixed(Twin):
    def __init__(self):
        super().__init__()
        self.pos = nn.Embedding(20, 8)

    def forward(self, x):
        return x + self.pos(torch.arange(x.shape[1]) + int(self.wrong))

def export(module, example, path):
    example = tuple(example.values()) if isinstance(example, dict) else tuple(example)
    torch.onnx.export(module, example, path, input_names=["x"], dynamo=True, verbose=False)
"""


def test_rows_that_forward_takes_of_no_input_are_all_that_it_uses(tmp_path: Path) -> None:
    found = run_twins(tmp_path, FIXED, {"Fixed": "{x: 'float32[3, 12, 8]'}"})
    right, wrong = found["fixed-right"].weights, found["fixed-wrong"].weights
    assert right is not None
    assert wrong is not None
    assert (found["fixed-right"].verdict, right.rearranged, right.unknown) == ("pass", 1, ())
    assert [each.parameter for each in wrong.unknown] == ["pos.weight"]
    assert not [each for each in found["fixed-right"].findings if each.code in ("OG406", "OG417")]
