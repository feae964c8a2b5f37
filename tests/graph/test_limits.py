"""Limits of what a graph negates, carries from step to step and computes, and sizes rounded wrongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.graph.graph import Graph, read_graph
from onnx_gate.graph.limits import FileLimit, limits_of_values, sizes_named

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Nodes = Sequence[onnx.NodeProto]


def _graph(nodes: Nodes, stored: Mapping[str, Any], made: str = "y") -> Graph:
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", "steps", 4])
    y = helper.make_tensor_value_info(made, FLOAT, None)
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in stored.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors))
    return read_graph(model, Path("model.onnx"))


def test_a_limit_of_a_negative_is_the_negative_of_one() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["less"]),
        helper.make_node("Max", ["less", "least"], ["y"]),
    ]
    found = limits_of_values(_graph(nodes, {"least": np.float32(-3)}))
    assert [*found] == [FileLimit("Max", (("less", -3.0), ("x", 3.0)))]


def test_a_limit_of_what_is_joined_is_one_of_each_part() -> None:
    # As a row of tokens is, put beside itself a place further on.
    nodes = [
        helper.make_node("Slice", ["x", "zero", "last", "one"], ["behind"]),
        helper.make_node("Concat", ["x", "behind"], ["both"], axis=1),
        helper.make_node("Where", ["is", "both", "both"], ["chosen"]),
        helper.make_node("Equal", ["chosen", "number"], ["y"]),
    ]
    stored = {
        **{name: np.array([at]) for name, at in (("zero", 0), ("last", -1), ("one", 1))},
        "is": np.array(True),
        "number": np.float32(77),
    }
    (found,) = limits_of_values(_graph(nodes, stored))
    assert found.values == tuple((name, 77.0) for name in ("chosen", "both", "x", "behind"))


def test_the_ends_of_a_quantised_type_are_limits() -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])]
    stored = {"scale": np.float32(0.5), "zero": np.uint8(3)}
    found = limits_of_values(_graph(nodes, stored))
    assert [each.values for each in found] == [(("x", -1.5),), (("x", 126.0),)]


@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
def test_the_clip_of_a_layer_of_relus_is_a_limit_of_its_states(activation: str) -> None:
    nodes = [
        helper.make_node(
            "RNN",
            ["x", "w", "r"],
            ["all", "last"],
            hidden_size=4,
            clip=5.0,
            activations=[activation],
        ),
        helper.make_node("Squeeze", ["all", "axis"], ["y"]),
    ]
    weight = np.zeros((1, 4, 4), np.float32)
    found = limits_of_values(_graph(nodes, {"w": weight, "r": weight, "axis": np.array([1])}))
    limits = [
        FileLimit("RNN", (("all", 5.0), ("y", 5.0))),
        FileLimit("RNN", (("last", 5.0),)),
    ]
    assert [*found] == (limits if activation == "Relu" else [])


def test_what_a_loop_holds_its_state_against_is_a_limit_of_what_leaves_it() -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "one"], ["more"]),
            helper.make_node("Min", ["more", "most"], ["after"]),
            helper.make_node("Identity", ["on"], ["still"]),
            helper.make_node("Identity", ["after"], ["each"]),
        ],
        "body",
        [info("i", INT64, []), info("on", TensorProto.BOOL, []), info("before", FLOAT, None)],
        [info(n, FLOAT, None) for n in ("still", "after", "each")],
    )
    nodes = [
        helper.make_node("Loop", ["count", "", "x"], ["last", "all"], body=body),
        helper.make_node("Transpose", ["all"], ["y"]),
    ]
    stored = {"count": np.array(9), "one": np.float32(1), "most": np.float32(600)}
    found = [each for each in limits_of_values(_graph(nodes, stored)) if each.operator == "Loop"]
    assert found == [
        FileLimit("Loop", (("last", 600.0),)),
        FileLimit("Loop", (("all", 600.0), ("y", 600.0))),
    ]


def test_a_size_that_nodes_make_of_constants_is_named() -> None:
    nodes = [
        helper.make_node("Mul", ["seconds", "rate"], ["most"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Min", ["sizes", "most"], ["y"]),
    ]
    stored = {"seconds": np.array(25), "rate": np.array(24)}
    assert 600 in sizes_named(_graph(nodes, stored))


@pytest.mark.parametrize(("dtype", "named"), [(np.float32, {180, 340}), (np.float64, {100, 200})])
def test_sizes_at_which_a_share_of_them_is_rounded_wrongly_are_named(
    dtype: type, named: set[int]
) -> None:
    share = 0.65 if dtype is np.float32 else 0.29
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["steps"]),
        helper.make_node("Cast", ["steps"], ["real"], to=to),
        helper.make_node("Mul", ["real", "share"], ["part"]),
        helper.make_node("Floor", ["part"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["y"], to=INT64),
    ]
    found = sizes_named(_graph(nodes, {"one": np.array(1), "share": dtype(share)}))
    assert found == named
