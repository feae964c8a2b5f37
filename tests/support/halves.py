"""Small graphs whose values leave float16's range on some inputs and stay in it on others.

Each is written in ONNX's text; ``at`` are the nodes that are wrong first, ``beyond`` and ``within`` the
ranges of the inputs for the file that is wrong and for its twin.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.parser
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

Span = tuple[float, float]


@dataclass(frozen=True)
class Graph:
    text: str
    at: str
    beyond: Span
    within: Span
    shape: tuple[int, ...] = (4, 64)


_TINY: Span = (1e-5, 9e-5)
_ONE: Span = (-1.0, 1.0)

GRAPHS = {
    "norm": Graph(
        "s = Mul(x, x)  t = ReduceSum<keepdims=1>(s, axis)  n = Sqrt(t)  y = Div(x, n)",
        "t",
        (0, 255),
        (0.1, 9),
    ),
    "power": Graph(
        "s = Pow(x, two)  t = ReduceSum<keepdims=1>(s, axis)  n = Sqrt(t)  y = Div(x, n)",
        "s",
        (200, 400),
        (0.1, 9),
    ),
    "softmax": Graph(
        "s = Exp(x)  t = ReduceSum<keepdims=1>(s, axis)  y = Div(s, t)",
        "s",
        (8, 14),
        (-4, 4),
    ),
    "attention": Graph(
        "k = Transpose<perm=[1, 0]>(x)  s = MatMul(x, k)  t = Mul(s, less)  y = Softmax(t)",
        "s",
        (30, 60),
        _ONE,
    ),
    "softplus": Graph("s = Exp(x)  t = Add(s, one)  y = Log(t)", "s", (6, 20), (-4, 4)),
    "residual": Graph(
        "a = Mul(x, hundred)  b = Add(a, x)  c = Add(b, a)  s = Sub(c, b)  y = Mul(s, small)",
        "c",
        (400, 600),
        (0.1, 9),
    ),
    "distance": Graph(
        "k = Transpose<perm=[1, 0]>(x)  d = MatMul(x, k)  e = Mul(d, small)  y = Sqrt(e)",
        "d",
        (30, 500),
        (0.1, 9),
    ),
    "image": Graph(
        "s = ReduceSum<keepdims=0>(x, axes)  t = Mul(s, small)  y = Sqrt(t)",
        "s",
        (100, 255),
        (0.1, 9),
        (1, 3, 16, 32),
    ),
    "rms": Graph(
        "s = Mul(x, x)  t = ReduceMean<keepdims=1>(s, axis)  u = Add(t, one)  n = Sqrt(u)  y = Div(x, n)",
        "s",
        (200, 400),
        (0.1, 9),
    ),
    "variance": Graph(
        "m = ReduceMean<keepdims=1>(x, axis)  d = Sub(x, m)  s = Mul(d, d)  "
        "t = ReduceMean<keepdims=1>(s, axis)  u = Add(t, one)  n = Sqrt(u)  y = Div(d, n)",
        "s",
        (-600, 600),
        (-9, 9),
    ),
    "flushed": Graph(
        "s = Mul(x, x)  t = ReduceSum<keepdims=1>(s, axis)  n = Sqrt(t)  y = Div(x, n)",
        "s",
        _TINY,
        (0.1, 9),
    ),
    "product": Graph("s = Mul(x, x)  t = Mul(s, x)  y = Div(t, s)", "t", (40, 60), (1, 9)),
    "logsumexp": Graph(
        "s = Exp(x)  t = ReduceSum<keepdims=1>(s, axis)  n = Log(t)  y = Sub(x, n)",
        "t",
        (7, 10.5),
        (-4, 4),
    ),
    "cosine": Graph(
        "k = Transpose<perm=[1, 0]>(x)  d = MatMul(x, k)  s = Mul(x, x)  "
        "t = ReduceSum<keepdims=1>(s, axis)  "
        "u = Transpose<perm=[1, 0]>(t)  v = Mul(t, u)  n = Sqrt(v)  y = Div(d, n)",
        "v",
        (2, 9),
        (0.1, 1),
    ),
    "cast": Graph(
        "s = CumSum(x, last)  t = Mul(s, small)  y = Sqrt(t)",
        "s_cast_to_fp16_node",
        (1000, 3000),
        (0.1, 9),
    ),
    "mean": Graph(
        "s = Sum(x, x, x)  t = ReduceSum<keepdims=1>(s, axis)  y = Mul(t, small)",
        "t",
        (300, 600),
        (0.1, 9),
    ),
    "reciprocal": Graph(
        "s = Reciprocal(x)  t = Mul(s, small)  y = Sqrt(t)", "s", (1e-6, 8e-6), (0.1, 9)
    ),
    "moved": Graph(
        "s = Mul(x, x)  r = Reshape(s, flat)  t = Mul(r, small)  y = Sqrt(t)",
        "s",
        (260, 400),
        (0.1, 9),
    ),
    "gelu": Graph(
        "s = Mul(x, x)  c = Mul(s, x)  d = Mul(c, small)  e = Sub(d, d)  y = Add(e, x)",
        "c",
        (41, 60),
        (0.1, 9),
    ),
    "pooled": Graph(
        "s = Mul(x, x)  p = GlobalAveragePool(s)  y = Sqrt(p)",
        "s",
        (260, 400),
        (0.1, 9),
        (1, 3, 8, 8),
    ),
}
"""By what they compute."""

_CONSTANTS = (
    "int64[1] axis = {-1}, int64[3] axes = {1, 2, 3}, int64 last = {1}, int64[1] flat = {-1}, "
    "float one = {1.0}, float two = {2.0}, float hundred = {100.0}, float small = {0.001}, "
    "float less = {0.0001}"
)


def plain(graph: Graph) -> onnx.ModelProto:
    """Return the graph in float32, every node named after its result."""
    shape = ", ".join(map(str, graph.shape))
    body = graph.text.replace(")  ", ")\n")
    text = (
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[{shape}] x) => (float y) <{_CONSTANTS}> '
        f"{{ {body} }}"
    )
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.output[0]
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


def halved(model: onnx.ModelProto, blocks: tuple[str, ...] = ()) -> onnx.ModelProto:
    """Return what ONNX Runtime's converter makes of it, and between nodes that it leaves no casts."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    made = OnnxModel(
        convert_float_to_float16(copy, keep_io_types=True, node_block_list=list(blocks))
    )
    # It casts a value once for each node that reads it, under one name.
    once = {node.output[0]: node for node in made.model.graph.node}
    del made.model.graph.node[:]
    made.model.graph.node.extend(once.values())
    made.topological_sort()
    if blocks:
        made.remove_cascaded_cast_nodes()
        made.topological_sort()
    return made.model


def write(folder: Path) -> None:
    """Write each graph in float32 and in float16."""
    for name, graph in GRAPHS.items():
        model = plain(graph)
        onnx.save(model, str(folder / f"{name}.onnx"))
        onnx.save(halved(model), str(folder / f"{name}.half.onnx"))
