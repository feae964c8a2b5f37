"""Between which ends the operators of a graph keep values, whatever the inputs are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.intervals import intervals
from onnx_gate.graph.steer import Steered
from tests.support.diverging import Of

INF = math.inf
# What is made of x, and between which ends it lies.
MADE = {
    "magnitudes": (lambda x: x.abs().mean(-1), (0.0, INF)),
    "squares": (lambda x: (x * x).sum(-1), (0.0, INF)),
    "powers": (lambda x: x.pow(2).mean(-1).sqrt(), (0.0, INF)),
    "a norm": (lambda x: x.norm(dim=-1), (0.0, INF)),
    "a variance": (lambda x: x.var(-1), (0.0, INF)),
    "a count": (lambda x: (x > 0).sum(-1), (0.0, INF)),
    "shares": (lambda x: x.softmax(-1), (0.0, 1.0)),
    "gates": (lambda x: 1 - 2 * x.sigmoid(), (-1.0, 1.0)),
    "a ReLU": (lambda x: -x.relu().reshape(6), (-INF, 0.0)),
    "a clamp": (lambda x: x.clamp(-2, 3)[:, :2] + 1, (-1.0, 4.0)),
    "exponentials": (lambda x: x.exp() / (x.exp().sum(-1, keepdim=True)), (0.0, INF)),
    "chosen": (lambda x: torch.where(x > 0, x.tanh(), x.sin() * 2), (-2.0, 2.0)),
    "signed": (lambda x: x * x.flip(0) + 1, (-INF, INF)),
    "a difference": (lambda x: x.abs() - x.flip(0).abs(), (-INF, INF)),
    "a mean": (lambda x: x.mean(-1), (-INF, INF)),
}


def test_ends_that_operators_prove(tmp_path: Path) -> None:
    path, x = tmp_path / "model.onnx", torch.randn(2, 3)
    every = Of(lambda x: tuple(function(x) for function, _ in MADE.values()))
    torch.onnx.export(every, (x,), path, dynamo=True, verbose=False)
    steered = Steered(onnx.load(path), path, {"x": x.numpy()})
    found = [steered.ends([name]) for name in steered.graph.outputs]
    assert dict(zip(MADE, found, strict=True)) == {name: ends for name, (_, ends) in MADE.items()}
    # Where a value may be any of several it is where one of them may be.
    assert steered.ends(steered.graph.outputs[:1] + steered.graph.outputs[-1:]) == (-INF, INF)


def test_quotients_and_remainders_of_whole_numbers_have_their_ends() -> None:
    days = helper.make_graph(
        [
            helper.make_node("Div", ["t", "by"], ["day"]),
            helper.make_node("Cast", ["day"], ["cast"], to=TensorProto.INT64),
            helper.make_node("Mul", ["cast", "by"], ["whole"]),
            helper.make_node("Sub", ["t", "whole"], ["second"]),
            helper.make_node("Mod", ["t", "by"], ["rest"]),
            helper.make_node("Neg", ["t"], ["before"]),
            helper.make_node("Div", ["before", "by"], ["ago"]),
        ],
        "days",
        [helper.make_tensor_value_info("t", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("second", TensorProto.INT64, ["n"])],
        [numpy_helper.from_array(np.array(60), "by")],
    )
    graph = read_graph(helper.make_model(days), Path("days.onnx"))
    found = intervals(graph, {}, {"t": (0.0, 3601.0)})
    assert found["day"] == (0.0, 60.0)
    assert found["second"] == found["rest"] == (0.0, 59.0)
    assert found["ago"] == (-60.0, 0.0)
