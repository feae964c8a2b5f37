"""Lengths beyond which a file's sums, products and places leave their types."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.shape_inference import infer_shapes

from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.lengths import LONGEST, lengths_beyond

GROWS: list[str | int] = ["batch", "steps", 4]
INT32, INT64, FLOAT = TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT


def _beyond(operator: str, kind: int, given: tuple[float, float], over: int = 1) -> frozenset[int]:
    nodes = [helper.make_node(operator, ["x", "over"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, kind, s) for n, s in (("x", GROWS), ("y", None)))
    axis = numpy_helper.from_array(np.array([over]), "over")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [axis]))
    return lengths_beyond(read_graph(infer_shapes(model), Path("model.onnx")), {"x": given})


@pytest.mark.parametrize(
    ("operator", "kind", "given", "least"),
    [
        ("ReduceSum", INT32, (0, 1e6), 2**31 / 1e6),
        ("ReduceSum", INT32, (-(2**20), 5), 2**11),
        ("CumSum", INT32, (0, 1e6), 2**31 / 1e6),
        ("ReduceSum", TensorProto.FLOAT16, (0, 100), 2**16 / 100),
        ("ReduceProd", FLOAT, (1, 2), 128),
        ("ReduceProd", FLOAT, (0.5, 1), 128),
        # A uniform factor is a power of e below its end, on average, and others are about that.
        ("ReduceProd", FLOAT, (0, 1), 128 * math.log(2)),
        ("ReduceProd", FLOAT, (-math.inf, math.inf), 128 * math.log(2)),
    ],
)
def test_a_length_beyond_which_most_draws_leave_the_type(
    operator: str, kind: int, given: tuple[float, float], least: float
) -> None:
    assert _beyond(operator, kind, given) == {4 * math.ceil(least) + 3}


def test_what_no_size_brings_beyond_its_type_names_none() -> None:
    assert _beyond("ReduceSum", INT64, (0, 2**60)) == set()  # PyTorch sums so as well
    assert _beyond("ReduceSum", INT32, (0, 1e6), over=2) == set()  # as many at every size
    assert _beyond("ReduceSum", INT32, (0, 1)) == set()  # a mask
    assert _beyond("ReduceSum", INT32, (-math.inf, math.inf)) == set()
    assert _beyond("ReduceSum", FLOAT, (0, 1e9)) == set()
    assert _beyond("ReduceProd", FLOAT, (1, 1)) == set()
    assert _beyond("ReduceSum", INT32, (0, 2**12)) == {LONGEST}
    # What is summed along an axis of four as well is there four times as soon.
    axes = [numpy_helper.from_array(np.array([1, 2]), "over")]
    node = helper.make_node("ReduceSum", ["x", "over"], ["y"])
    x, y = (helper.make_tensor_value_info(n, INT32, s) for n, s in (("x", GROWS), ("y", None)))
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], axes))
    graph = read_graph(infer_shapes(model), Path("model.onnx"))
    assert lengths_beyond(graph, {"x": (0, 2**20)}) == {4 * 2**9 + 3}


def test_products_of_matrices_and_narrow_types_have_their_ends() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "taps"], ["y"]),
        helper.make_node("Cast", ["x"], ["z"], to=TensorProto.UINT8),
    ]
    infos = [
        helper.make_tensor_value_info(n, INT32, s) for n, s in (("x", ["a", "b"]), ("y", None))
    ]
    taps = helper.make_tensor_value_info("taps", INT32, ["b", 1])
    model = helper.make_model(helper.make_graph(nodes, "g", [infos[0], taps], infos[1:]))
    graph = read_graph(infer_shapes(model), Path("model.onnx"))
    found = lengths_beyond(graph, {"x": (0, 2**12), "taps": (0, 2**10)})
    assert found == {4 * 2**9 + 3, 4 * 2**8 + 3}


def test_a_wide_sum_that_is_put_into_32_bits_leaves_these() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x", "over"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["y"], to=TensorProto.INT32),
    ]
    x, y = (helper.make_tensor_value_info(n, INT64, s) for n, s in (("x", GROWS), ("y", None)))
    axis = numpy_helper.from_array(np.array([1]), "over")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [axis]))
    graph = read_graph(infer_shapes(model), Path("model.onnx"))
    assert lengths_beyond(graph, {"x": (0, 2**20)}) == {4 * 2**11 + 3}
