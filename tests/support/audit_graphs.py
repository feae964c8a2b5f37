"""Small graphs that have, between them, room for every fault of the audit's catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array

OPSET = 20


@dataclass(frozen=True)
class Sample:
    """A graph, what the manifest would say of its inputs, and values for them."""

    model: onnx.ModelProto
    inputs: dict[str, InputSpec]
    feeds: dict[str, Array]
    sizes: dict[str, int]


def samples() -> dict[str, Sample]:
    """Return the graphs, by what they are for."""
    return {"image": _image(), "text": _text(), "nested": _nested(), "recurrent": _recurrent()}


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        return self.constant(self._random.standard_normal(shape).astype(np.float32) * 0.5)

    def constant(self, value: object, dtype: type | None = None) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"v{len(self.nodes)}"
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name, **attributes))
        return output

    def model(
        self, inputs: dict[str, tuple[int, tuple[int | str, ...]]], outputs: dict[str, int]
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "sample",
            [helper.make_tensor_value_info(n, t, list(s)) for n, (t, s) in inputs.items()],
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * rank)
                for n, rank in outputs.items()
            ],
            self.tensors,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _image() -> Sample:
    b = _Builder()
    one = b.constant(np.abs(np.random.default_rng(1).standard_normal(4)).astype(np.float32) + 0.5)
    x = b.node("Conv", "image", b.weight(4, 3, 3, 3), b.weight(4), pads=[1, 1, 1, 1])
    x = b.node("BatchNormalization", x, b.weight(4), b.weight(4), b.weight(4), one)
    x = b.node("Relu", x)
    x = b.node("MaxPool", x, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    x = b.node("Clip", x, b.constant(-0.01, np.float32), b.constant(0.9, np.float32))
    x = b.node("Conv", x, b.weight(4, 4, 3, 3), b.weight(4), pads=[1, 1, 1, 1])
    x = b.node("LeakyRelu", x, alpha=0.1)
    x = b.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = b.node("Pad", x, b.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="reflect")
    scales = b.constant([1, 1, 1.5, 1.5], np.float32)
    x = b.node("Resize", x, "", scales, mode="linear")
    x = b.node("Resize", x, "", scales, mode="nearest", nearest_mode="floor")
    x = b.node("Sigmoid", x)
    fifths = b.node("Floor", b.node("Mul", x, b.constant(5, np.float32)))
    x = b.node("Mul", x, b.node("Round", b.node("Mul", fifths, b.constant(0.5, np.float32))))
    x = b.node("ReduceMean", x, b.constant([2, 3], np.int64), keepdims=0)
    x = b.node("Gemm", x, b.weight(4, 4), b.weight(4))
    b.node("Softmax", x, output="score", axis=-1)
    model = b.model({"image": (TensorProto.FLOAT, ("batch", 3, 8, 8))}, {"score": 2})
    feeds = {"image": np.random.default_rng(2).standard_normal((2, 3, 8, 8)).astype(np.float32)}
    spec = InputSpec("float32", ("batch", 3, 8, 8))
    return Sample(model, {"image": spec}, feeds, {"batch": 2})


def _text() -> Sample:
    b = _Builder()
    batch = b.node("Shape", "tokens", start=0, end=1)
    x = b.node("Gather", b.weight(16, 8), "tokens")
    rows = b.node("Shape", "tokens", start=1, end=2)
    table = b.weight(16, 8)
    zero, axis = b.constant([0], np.int64), b.constant([0], np.int64)
    x = b.node("Add", x, b.node("Slice", table, zero, rows, axis))
    x = b.node("LayerNormalization", x, b.weight(8), b.weight(8), epsilon=1e-2)
    q, k = (b.node("Add", b.node("MatMul", x, b.weight(8, 8)), b.weight(8)) for _ in range(2))
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 1]))
    scores = b.node("Mul", scores, b.constant(0.35, np.float32))
    seen = b.node("Cast", b.node("Unsqueeze", "mask", b.constant([1], np.int64)), to=9)
    scores = b.node("Where", seen, scores, b.constant(-1e9, np.float32))
    square = b.node("Trilu", b.node("Exp", scores), upper=0)
    mixed = b.node("MatMul", b.node("Softmax", square, axis=-1), x)
    x = b.node("Add", x, mixed)
    heads = b.node("Reshape", x, b.constant([0, 0, 2, 4], np.int64))
    turned = b.node("Transpose", heads, perm=[0, 2, 1, 3])
    shape = b.node("Concat", batch, b.constant([-1, 8], np.int64), axis=0)
    x = b.node("Reshape", turned, shape)
    x = b.node("Gelu", x)
    kept = b.node("Greater", "mask", b.constant(0, np.int64))
    x = b.node(
        "Where",
        b.node("Unsqueeze", kept, b.constant([2], np.int64)),
        x,
        b.constant(0.5, np.float32),
    )
    x = b.node("Concat", b.node("Elu", b.node("Sub", x, b.node("Tanh", x))), axis=0)
    cached = b.node("ReduceSum", "past_key", b.constant([1, 3], np.int64), keepdims=0)
    steps = b.constant(np.arange(1, 4), np.float32)
    weighed = b.node("ReduceSum", b.node("Mul", cached, steps), b.constant([1], np.int64))
    x = b.node("Add", x, b.node("Unsqueeze", weighed, b.constant([2], np.int64)))
    b.node("Slice", x, zero, b.constant([2], np.int64), b.constant([2], np.int64), output="first")
    b.node("Gather", x, b.constant(1, np.int64), axis=1, output="second")
    b.node("Mul", b.node("Gather", x, b.constant(0, np.int64), axis=1), steps_of(b), output="third")
    inputs = {
        "tokens": InputSpec("int64", ("batch", "seq"), (0.0, 99.0)),
        "mask": InputSpec("int64", ("batch", "seq"), (0.0, 1.0)),
        "past_key": InputSpec("float32", ("batch", 2, "past", 4)),
    }
    types = {"tokens": TensorProto.INT64, "mask": TensorProto.INT64, "past_key": TensorProto.FLOAT}
    model = b.model(
        {name: (types[name], spec.shape) for name, spec in inputs.items()},
        {"first": 3, "second": 2, "third": 2},
    )
    random = np.random.default_rng(3)
    feeds = {
        "tokens": random.permutation(16)[:15].reshape(3, 5),
        "mask": np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]),
        "past_key": random.standard_normal((3, 2, 3, 4)).astype(np.float32),
    }
    return Sample(model, inputs, feeds, {"batch": 2, "seq": 5, "past": 3})


def steps_of(builder: _Builder) -> str:
    """A vector to multiply by, as the last norm of many models has."""
    return builder.weight(8)


# Names that bodies give twice, a weight of the graph around them, a function of the file.
_NESTED = """
<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
nested (float[batch, 4] x) => (float[batch, 4] y)
{
  total = ReduceSum <keepdims = 0> (x)
  zero = Constant <value_float = 0.0> ()
  positive = Greater (total, zero)
  chosen = If (positive) <
    then_branch = yes () => (float[batch, 4] out) {
      h = MatMul (x, w0)
      out = Softmax <axis = -1> (h)
    },
    else_branch = no () => (float[batch, 4] out) {
      h = MatMul (x, w1)
      out = LeakyRelu <alpha = 0.1> (h)
    }
  >
  times = Constant <value = int64 {3}> ()
  yes_always = Constant <value = bool {1}> ()
  looped = Loop (times, yes_always, chosen) <
    body = step (int64 i, bool go_on, float[batch, 4] state) => (bool still, float[batch, 4] next) {
      still = Identity (go_on)
      h = Gemm (state, w2, b2)
      next = Tanh (h)
    }
  >
  y = own.Scaled (looped, w3)
}
<domain: "own", opset_import: ["" : 20]>
Scaled (a, w) => (b)
{
  half = Constant <value_float = 0.5> ()
  h = Mul (a, half)
  b = MatMul (h, w)
}
"""


def _nested() -> Sample:
    model = onnx.parser.parse_model(_NESTED)
    random = np.random.default_rng(3)
    shapes = {"w0": (4, 4), "w1": (4, 4), "w2": (4, 4), "b2": (4,), "w3": (4, 4)}
    tensors = {
        name: numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    }
    model.graph.initializer.extend([tensors["w0"], tensors["b2"], tensors["w3"]])
    for node in model.graph.node:
        for attribute in node.attribute:
            own = {"else_branch": "w1", "body": "w2"}.get(attribute.name)
            if own is not None:
                attribute.g.initializer.append(tensors[own])
    x = np.abs(random.standard_normal((2, 4))).astype(np.float32)
    spec = InputSpec(dtype="float32", shape=("batch", 4))
    return Sample(model, {"x": spec}, {"x": x}, {"batch": 2})


def _recurrent() -> Sample:
    b = _Builder()
    states = ("state", "cell")
    lstm = (b.weight(1, 16, 3), b.weight(1, 16, 4), b.weight(1, 32))
    x = b.node("LSTM", "signal", *lstm, "", *states, hidden_size=4)
    x = b.node("Squeeze", x, b.constant([1], np.int64))
    gru = (b.weight(1, 12, 4), b.weight(1, 12, 4), b.weight(1, 24))
    b.node("GRU", x, *gru, "", "state", output="y", hidden_size=4, linear_before_reset=1)
    random = np.random.default_rng(4)
    shapes: dict[str, tuple[int | str, ...]] = {
        "signal": (5, "batch", 3),
        **dict.fromkeys(states, (1, "batch", 4)),
    }
    feeds = {
        name: random.standard_normal([2 if d == "batch" else int(d) for d in shape])
        for name, shape in shapes.items()
    }
    return Sample(
        b.model({n: (TensorProto.FLOAT, s) for n, s in shapes.items()}, {"y": 4}),
        {name: InputSpec("float32", shape) for name, shape in shapes.items()},
        {name: array.astype(np.float32) for name, array in feeds.items()},
        {"batch": 2},
    )
