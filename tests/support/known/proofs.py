"""What shows each entry of the book: a module of one line, or a file of one node.

``told`` is what was seen where it is fixed by now, ``at`` a version that had it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from onnx_gate.known import Failure
from tests.support.known.showing import (
    OPENVINO,
    OPTIMISED,
    PLAIN,
    Shown,
    answering,
    export,
    exported,
    exporting,
    graph,
    loading,
)

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Proof:
    """``show`` returns what fails, ``None`` where nothing does; ``needs`` is a package for it.

    ``flag`` is what a processor needs for the kernel that is at fault, as ``/proc/cpuinfo`` names it.
    """

    thread: str
    show: Callable[[], Shown]
    exporter: str = ""
    told: Failure | None = None
    at: str = ""
    needs: str = ""
    flag: str = ""


X = torch.rand(4, 4) + 0.1
SQUARE = torch.eye(4) + 0.1 * torch.rand(4, 4)
IMAGE = torch.rand(1, 2, 8, 8)
INDEX = torch.zeros(4, 4, dtype=torch.int64)
VOLUME = torch.rand(1, 1, 3, 3, 3), torch.rand(1, 2, 2, 2, 3)


def _ts(thread: str, function: Any, *inputs: torch.Tensor, **options: Any) -> Proof:
    return Proof(thread, partial(exporting, function, *(inputs or (X,)), **options), "torchscript")


def _ts_old(thread: str, at: str, name: str, function: Any, *inputs: torch.Tensor) -> Proof:
    message = f"Exporting the operator 'aten::{name}' to ONNX opset version 14 is not supported"
    told = Failure("export", {}, message, "torchscript")
    return Proof(thread, partial(exporting, function, *inputs), "torchscript", told, at)


def _dynamo(thread: str, function: Any, *inputs: torch.Tensor) -> Proof:
    return Proof(thread, partial(exporting, function, *inputs, exporter="dynamo"), "dynamo")


def _wrong(
    thread: str, operator: str, function: Any, *inputs: torch.Tensor, **options: Any
) -> Proof:
    """Return the proof that the dynamo exporter's file answers otherwise."""
    told, at = options.pop("told", None), options.pop("at", "")
    options.setdefault("exporter", "dynamo")
    show = partial(exported, function, *inputs, operator=operator, **options)
    return Proof(thread, show, options["exporter"], told, at)


def _unary(operator: str, dtype: str, opset: int = 13, out: str = "", inputs: int = 1) -> str:
    given = ", ".join(f"{dtype}[2,2] x{i}" for i in range(inputs))
    names = ", ".join(f"x{i}" for i in range(inputs))
    return graph(f"({given}) => ({out or dtype}[2,2] y) {{ y = {operator}({names}) }}", opset)


def _load(thread: str, text: str, **options: Any) -> Proof:
    return Proof(thread, partial(loading, text), **options)


def _kernel_old(thread: str, at: str, operator: str, dtype: str, text: str) -> Proof:
    message = f"Could not find an implementation for {operator}(13) node with name 'n'"
    told = Failure("load", {}, message, engine="onnxruntime", operator=operator, dtypes=(dtype,))
    return _load(thread, text, told=told, at=at)


def _load_old(thread: str, at: str, message: str, text: str) -> Proof:
    return _load(thread, text, told=Failure("load", {}, message, engine="onnxruntime"), at=at)


def _ort(
    thread: str, text: str, feeds: dict[str, Any], expected: Any, operator: str, **options: Any
) -> Proof:
    runtime = options.pop("runtime", PLAIN)
    show = partial(answering, text, feeds, expected, "kernel", operator, runtime)
    return Proof(thread, show, **options)


def _openvino(
    thread: str, text: str, feeds: dict[str, Any], expected: Any, operator: str, **options: Any
) -> Proof:
    show = partial(answering, text, feeds, expected, "kernel", operator, OPENVINO)
    return Proof(thread, show, needs="openvino", **options)


def _diverged(**facts: Any) -> Failure:
    return Failure("diverged", {}, **facts)


def _f(*values: float) -> Any:
    return np.array(values, np.float32)


_TORCHSCRIPT = (
    _ts("pytorch/issues/129331", lambda a: torch.fft.fft(a).real),
    _ts("pytorch/issues/98833", lambda a: torch.fft.fft2(a).real),
    _ts("pytorch/issues/112382", lambda a: torch.fft.rfft(a).real),
    _ts("pytorch/issues/136622", torch.linalg.inv, SQUARE),
    _ts("pytorch/issues/133052", lambda a: torch.linalg.solve(a, a), SQUARE),
    _ts("pytorch/issues/85371", torch.linalg.pinv, SQUARE),
    _ts(
        "pytorch/issues/103572",
        lambda a: torch.linalg.solve_triangular(a, a, upper=True),
        SQUARE,
    ),
    _ts("pytorch/issues/151648", lambda a: torch.searchsorted(torch.arange(4.0), a)),
    _ts("pytorch/issues/102948", lambda a: torch.cumprod(a, 1)),
    _ts("onnx/issues/3586", lambda a: torch.kthvalue(a, 2)[0]),
    _ts("onnx/issues/3905", lambda a: torch.quantile(a, 0.5)),
    _ts("pytorch/issues/74032", lambda a: torch.histc(a, 4, 0, 1)),
    _ts("pytorch/issues/98205", torch.diag),
    _ts("pytorch/issues/67113", torch.trace),
    _ts("pytorch/issues/105520", lambda a: F.gumbel_softmax(a, hard=True)),
    _ts("pytorch/issues/159249", lambda a: F.rms_norm(a, (4,))),
    _ts("onnx/issues/6480", lambda a: torch.polar(a, a).real),
    _ts("pytorch/issues/49793", lambda a: torch.view_as_complex(a.view(4, 2, 2)).abs()),
    _ts(
        "pytorch/issues/121623",
        lambda a: F.interpolate(a, size=(4, 4), mode="bilinear", antialias=True),
        IMAGE,
    ),
    _ts(
        "pytorch/issues/119232",
        lambda a: F.interpolate(a, size=(4, 4), mode="bicubic", antialias=True),
        IMAGE,
    ),
    _ts(
        "pytorch/issues/107677",
        lambda a: torch.stft(a, 8, return_complex=True, window=torch.ones(8)).abs(),
        torch.rand(1, 64),
    ),
    _ts("pytorch/issues/64806", lambda a: F.adaptive_avg_pool2d(a, 3), IMAGE),
    _ts(
        "pytorch/issues/92209",
        lambda a, g: F.grid_sample(a, g, align_corners=False),
        *VOLUME,
        opset=16,
    ),
    _ts("pytorch/issues/101535", lambda a: torch.scatter_reduce(a, 0, INDEX, a, "mean")),
    _ts(
        "onnx/issues/5100",
        lambda a: torch.scatter_reduce(a, 0, INDEX, a, "amax", include_self=False),
    ),
    _wrong(
        "pytorch/issues/44692",
        "Div",
        lambda a, b: a // b,
        torch.tensor([-7, 7]),
        torch.tensor([2, -2]),
        exporter="torchscript",
    ),
    _ts_old("pytorch/issues/98857", "2.0", "unflatten", lambda a: a.unflatten(0, (2, 2)), X),
    _ts_old("pytorch/issues/99692", "2.0", "tile", lambda a: a.tile(2), X),
    _ts_old(
        "pytorch/issues/97262",
        "2.0",
        "scaled_dot_product_attention",
        lambda a: F.scaled_dot_product_attention(a, a, a),
        torch.rand(1, 1, 4, 8),
    ),
    _ts_old(
        "pytorch/issues/96449",
        "1.13.1",
        "affine_grid_generator",
        lambda a: F.affine_grid(a, [1, 1, 3, 3], align_corners=False),
        torch.rand(1, 2, 3),
    ),
    _ts_old(
        "pytorch/issues/75413",
        "1.10.2",
        "bucketize",
        lambda a: torch.bucketize(a, torch.arange(4.0)),
        X,
    ),
)
_MASK = torch.tensor([[False, False, True, True, True, True, False, False]])
_ROW = torch.ones(1, 1, 4, 4, dtype=torch.bool)
_ROW[0, 0, 0, :3] = False
_ARRAY = (_f(-7, 7),)


def _both_ways(forward: Any, backward: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([forward(x)[0], backward(x.flip(1))[0].flip(1)], -1)


_DYNAMO = (
    _dynamo(
        "pytorch/issues/194381",
        lambda a, m: (1.0 - m) * a,
        X,
        torch.ones(4, 4, dtype=torch.int64),
    ),
    Proof(
        "pytorch/issues/158094",
        lambda: loading(
            export(
                lambda a: torch.flip(F.softmax(a, 0), (1,)),
                X,
                exporter="dynamo",
                output_names=["softmax"],
            )
        ),
    ),
    _dynamo("onnx/issues/5570", lambda a: torch.linalg.svd(a)[1], SQUARE),
    _dynamo("pytorch/issues/151648", lambda a: torch.searchsorted(torch.arange(4.0), a), X),
    _wrong(
        "pytorch/issues/189225",
        "GRU",
        lambda gru, a: gru(a)[0],
        torch.randn(5, 2, 4),
        parts=[torch.nn.GRU(4, 8)],
        told=_diverged(
            exporter="dynamo",
            blame="exporter",
            operator="GRU",
            attributes={"linear_before_reset": 0},
        ),
        at="0.7.0",
    ),
    _wrong(
        "pytorch/issues/186146",
        "ScatterND",
        lambda e, m, i: e.masked_scatter(m.unsqueeze(-1), i),
        torch.zeros(1, 8, 3),
        _MASK,
        torch.arange(12.0).reshape(4, 3) + 1,
        told=_diverged(
            exporter="dynamo",
            blame="exporter",
            operator="ScatterND",
            source="call_function[target=torch.ops.aten.masked_scatter.default](args = (%a, %m, %i))",
        ),
        at="0.7.1",
    ),
    _wrong(
        "pytorch/issues/191855",
        "Expand",
        _both_ways,
        torch.randn(1, 7, 4),
        other=(torch.randn(1, 5, 4),),
        parts=[torch.nn.LSTM(4, 3, batch_first=True), torch.nn.LSTM(4, 3, batch_first=True)],
        dynamic_shapes=(({1: torch.export.Dim("t", min=2, max=64)},),),
        told=Failure(
            "run",
            {},
            "running Expand 'node_Expand_3': invalid expand shape",
            "dynamo",
            "onnxruntime",
            operator="Expand",
        ),
        at="0.7.1",
    ),
    _wrong(
        "pytorch/issues/183546",
        "Resize",
        lambda a: F.interpolate(a, size=(4, 5), mode="bilinear", antialias=True),
        torch.arange(16.0).reshape(1, 1, 2, 8) / 8,
        told=_diverged(
            exporter="dynamo",
            blame="exporter",
            operator="Resize",
            attributes={"antialias": 1, "exclude_outside": 0},
        ),
        at="0.7.1",
    ),
    Proof(
        "pytorch/issues/194382",
        lambda: exporting(lambda a: torch.ops.aten.mul.Scalar(a, 2), INDEX, exporter="dynamo"),
        "dynamo",
        Failure(
            "export",
            {},
            "No ONNX function found for <OpOverload(op='aten.mul', overload='Scalar')>.",
            "dynamo",
        ),
        "0.7.1",
    ),
    Proof(
        "onnxscript/issues/2617",
        lambda: exporting(lambda a: a & 1, torch.tensor([1, 2, 3]), exporter="dynamo"),
        "dynamo",
        Failure("export", {}, "AttributeError: 'int' object has no attribute 'dtype'", "dynamo"),
        "0.5.4",
    ),
    _wrong(
        "onnxscript/pull/2479",
        "Softmax",
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        torch.randn(1, 1, 4, 8),
        _ROW,
        told=_diverged(
            exporter="dynamo",
            blame="exporter",
            operator="Softmax",
            source="torch.ops.aten.scaled_dot_product_attention.default",
            nonfinite=True,
        ),
        at="0.4.0",
    ),
    _wrong(
        "onnxscript/pull/582",
        "ScatterElements",
        lambda a: torch.scatter_reduce(a, 0, INDEX, a, "mean"),
        X,
    ),
    _wrong(
        "onnxscript/pull/904",
        "Log",
        lambda a: torch.logcumsumexp(a, 1),
        torch.tensor([[-200.0, -100.0, 0.0, 100.0, 200.0]]),
    ),
    _wrong(
        "onnxscript/issues/989",
        "Floor",
        lambda a, b: a // b,
        torch.tensor([1.0, 2.0]),
        torch.tensor([0.1, 0.2]),
    ),
    _wrong(
        "onnxscript/issues/2965",
        "Concat",
        lambda a, p, q: a.index_put((p, q), torch.tensor(9.0)),
        X,
        torch.tensor([True, False, True, False]),
        torch.tensor([True, False, True, False]),
        other=(X, torch.tensor([True, False, False, False]), torch.tensor([True] * 3 + [False])),
    ),
    Proof(
        "pytorch/issues/118733",
        lambda: loading(export(lambda c, a: torch.where(c, a, 0.0), X > 0.5, X)),
        told=Failure(
            "load",
            {},
            "Type Error: Type parameter (T) of Optype (Where) bound to different types",
            engine="onnxruntime",
        ),
        at="2.2.0",
    ),
)
_POOL = "kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1], ceil_mode=1"
_EIGHT = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
_Q = {name: np.ones((1, 1, 2, 4), np.float32) for name in "qkv"}


def _pooled(operator: str, attributes: str) -> str:
    return graph(
        f"(float[1,1,8,8] x) => (float[1,1,a,b] y) {{ y = {operator}<{attributes}>(x) }}", 19
    )


def _torch_pool(function: Any, **options: Any) -> Any:
    return function(torch.from_numpy(_EIGHT), 3, 3, 1, ceil_mode=True, **options).numpy()


_CONV_ADD = graph(
    "(float[1,4,3,3] x, float[4,2,1,1] w) => (float[1,4,3,3] y) { a = Conv<group=2>(x, w) y = Add(a, x) }"
)
_PAD = graph(
    "(float[1,1,8,8] x) => (float[1,1,8,8] y) <int64[8] p = {0,0,1,1,0,0,1,1}> "
    "{ z = Pad(x, p) y = AveragePool<kernel_shape=[3,3]>(z) }",
    18,
)
_ONNXRUNTIME = (
    _load("onnxruntime/issues/26311", _unary("MatMul", "bfloat16", inputs=2)),
    _load("onnxruntime/issues/23875", _unary("Abs", "bfloat16")),
    _load("onnxruntime/issues/13262", _unary("Sqrt", "bfloat16")),
    _load("onnxruntime/pull/29902", _unary("IsNaN", "bfloat16", out="bool")),
    _load("onnxruntime/issues/28768", _unary("Exp", "bfloat16")),
    _load(
        "onnxruntime/issues/7546",
        graph("(double[1,1,4,4] x, double[1,1,2,2] w) => (double[1,1,3,3] y) { y = Conv(x, w) }"),
    ),
    _load(
        "onnxruntime/issues/9539",
        graph("(bool[2] c, bool[2] a, bool[2] b) => (bool[2] y) { y = Where(c, a, b) }"),
    ),
    _load(
        "onnxruntime/pull/25734",
        graph("(uint64[2,2] x) => (uint64[1,1] y) { y = ReduceSum<keepdims=1>(x) }"),
    ),
    _kernel_old("onnxruntime/issues/19710", "1.16.3", "Cos", "float64", _unary("Cos", "double")),
    _kernel_old(
        "onnxruntime/issues/10068",
        "1.7.0",
        "ArgMax",
        "int64",
        graph("(int64[2,2] x) => (int64[2,1] y) { y = ArgMax<axis=1>(x) }"),
    ),
    _kernel_old(
        "onnxruntime/issues/26382", "1.23.2", "Max", "int8", _unary("Max", "int8", inputs=2)
    ),
    _ort(
        "onnx/issues/8203",
        graph(
            "(float[1,1] x) => (float[1,2] y) <float two = {2.0}, float eps = {0.00001}, "
            "float[2] s = {1.0, 3.0}> { a = Pow(x, two) b = ReduceMean<axes=[-1]>(a) "
            "c = Add(b, eps) d = Sqrt(c) e = Div(x, d) y = Mul(e, s) }"
        ),
        {"x": np.ones((1, 1), np.float32)},
        [[1.0, 3.0]],
        "",
        runtime=OPTIMISED,
    ),
    _load_old(
        "onnxruntime/issues/28136",
        "1.24.1",
        "Failed to find kernel for com.microsoft.FusedMatMul(1) (node:'/MatMul/') ... (tensor(double))",
        graph(
            "(double[5,6] x, double[5,7] w) => (double[6,7] y) "
            "{ z = Transpose<perm=[1,0]>(x) y = MatMul(z, w) }"
        ),
    ),
    _load_old(
        "onnxruntime/issues/11476",
        "1.8.0",
        "Failed to find kernel for FusedConv(1) (node fused). the node has the type (tensor(double))",
        graph(
            "(float[1,1,4,4] x, float[1,1,2,2] w) => (float[1,1,3,3] y) { z = Conv(x, w) y = Relu(z) }"
        ),
    ),
    _load_old(
        "onnxruntime/issues/20641",
        "1.17.0",
        "Node (MatMulBnFusion_Gemm) Op (Gemm) [ShapeInferenceError] First input does not have rank 2",
        graph(
            "(float[2,3,1] x) => (float[2,3,1] y) <float[1,1] w = {1}, float[3] s = {1,1,1}, "
            "float[3] b = {0,0,0}, float[3] m = {0,0,0}, float[3] v = {1,1,1}> "
            "{ a = MatMul(x, w) y = BatchNormalization(a, s, b, m, v) }"
        ),
    ),
    _ort(
        "onnxruntime/issues/26262",
        graph(
            "(float[1,1,2,4] q, float[1,1,2,4] k, float[1,1,2,4] v) => "
            "(float[1,1,2,4] y, float[1,1,2,4] pk, float[1,1,2,4] pv) { y, pk, pv = Attention(q, k, v) }",
            23,
            11,
        ),
        _Q,
        _Q["v"],
        "Attention",
        told=Failure(
            "run",
            {},
            "The implementation only supports past_key and present_key both null or both not null.",
            engine="onnxruntime",
            operator="Attention",
        ),
        at="1.23.0",
    ),
    _ort(
        "onnxruntime/issues/10514",
        graph("(float[2] x) => (float[1] y) { y = ReduceMax(x) }", 13),
        {"x": _f(1, NAN)},
        [NAN],
        "ReduceMax",
    ),
    _ort(
        "onnxruntime/issues/21455",
        graph("(float[3,1] x, float[1] b) => (float[3,1] y) { y = Min(x, b) }", 13),
        {"x": np.array([[NAN], [1], [20]], np.float32), "b": _f(10)},
        [[NAN], [1], [10]],
        "Min",
        told=_diverged(engine="onnxruntime", blame="kernel", operator="Min", nonfinite=True),
        at="1.18.1",
    ),
    _ort(
        "onnxruntime/issues/16350",
        _pooled("MaxPool", _POOL),
        {"x": _EIGHT},
        _torch_pool(F.max_pool2d),
        "MaxPool",
        told=_diverged(
            engine="onnxruntime", blame="kernel", operator="MaxPool", attributes={"ceil_mode": 1}
        ),
        at="1.14.1",
    ),
    _ort(
        "onnx/issues/4958",
        _pooled("AveragePool", f"{_POOL}, count_include_pad=0"),
        {"x": _EIGHT},
        _torch_pool(F.avg_pool2d, count_include_pad=False),
        "AveragePool",
        told=_diverged(
            engine="onnxruntime",
            blame="kernel",
            operator="AveragePool",
            attributes={"ceil_mode": 1, "count_include_pad": 0},
            nonfinite=True,
        ),
        at="1.14.0",
    ),
    _ort(
        "onnxruntime/pull/27375",
        _pooled("AveragePool", f"{_POOL}, count_include_pad=1"),
        {"x": _EIGHT},
        _torch_pool(F.avg_pool2d),
        "AveragePool",
        told=_diverged(
            engine="onnxruntime",
            blame="kernel",
            operator="AveragePool",
            attributes={"count_include_pad": 1},
        ),
        at="1.25.0",
    ),
    _ort(
        "onnxruntime/issues/12498",
        _CONV_ADD,
        {"x": np.ones((1, 4, 3, 3), np.float32), "w": np.ones((4, 2, 1, 1), np.float32)},
        np.full((1, 4, 3, 3), 3.0),
        "Add",
        told=_diverged(engine="onnxruntime", blame="optimiser", fused_by="ConvAddFusion"),
        at="1.12.0",
    ),
    _ort(
        "onnxruntime/issues/22177",
        _PAD,
        {"x": _EIGHT},
        F.avg_pool2d(F.pad(torch.from_numpy(_EIGHT), (1, 1, 1, 1)), 3, 1).numpy(),
        "AveragePool",
        told=_diverged(engine="onnxruntime", blame="optimiser", fused_by="Pad_Fusion"),
        at="1.19.2",
    ),
)


def _on(operator: str, opset: int = 18, size: int = 5, attributes: str = "") -> str:
    return graph(
        f"(float[{size}] x) => (float[{size}] y) {{ y = {operator}{attributes}(x) }}", opset
    )


def _two(operator: str, dtype: str, size: int) -> str:
    given = f"({dtype}[{size}] a, {dtype}[{size}] b) => ({dtype}[{size}] y)"
    return graph(f"{given} {{ y = {operator}(a, b) }}", 18)


_LARGE = np.array([3, 1234567890, 999999999, 1999999993, 1500000001])
_BYTES = {"a": np.array([200, 100], np.uint8), "b": np.array([100, 200], np.uint8)}
_OPENVINO = (
    _openvino(
        "openvino/issues/35649",
        _on("Relu"),
        {"x": _f(NAN, -1, 0, 1, INF)},
        [NAN, 0, 0, 1, INF],
        "Relu",
    ),
    _openvino(
        "openvino/issues/35839",
        _two("Min", "float", 4),
        {"a": _f(NAN, 7, NAN, -2.5), "b": _f(10, NAN, NAN, 9)},
        [NAN, NAN, NAN, -2.5],
        "Min",
    ),
    _openvino(
        "openvino/issues/35934",
        _on("Gelu", 20, 2),
        {"x": _f(INF, 75)},
        [INF, 75],
        "Gelu",
        flag="avx512f",
    ),
    _openvino(
        "openvino/issues/36234",
        graph("(float[3] x) => (float y) { y = ReduceLogSumExp<keepdims=0>(x) }", 18),
        {"x": _f(0.5, NAN, 1)},
        NAN,
        "ReduceLogSumExp",
    ),
    _openvino(
        "openvino/issues/35898",
        graph(
            "(float[6] x) => (float[3] y, int64[3] i) <int64[1] k = {3}> { y, i = TopK<axis=0>(x, k) }",
            18,
        ),
        {"x": _f(1, NAN, 3, 2, 0, 5)},
        [NAN, 5, 3],
        "TopK",
    ),
    _openvino(
        "openvino/issues/35887",
        graph("(float[2,2] x) => (float[2,2] y) { y = LpNormalization<axis=-1, p=2>(x) }", 18),
        {"x": np.array([[3, 4], [0, 0]], np.float32)},
        [[0.6, 0.8], [0, 0]],
        "LpNormalization",
        told=_diverged(
            engine="openvino", blame="kernel", operator="LpNormalization", nonfinite=True
        ),
        at="2026.1.0",
    ),
    _openvino(
        "openvino/issues/35829",
        _two("Mod", "int64", 5),
        {"a": _LARGE, "b": np.full(5, 13)},
        _LARGE % 13,
        "Mod",
    ),
    _openvino(
        "openvino/issues/35896",
        graph("(float[2] x) => (int64[2] y) { y = Cast<to=7>(x) }", 18),
        {"x": _f(5e18, 7.7)},
        np.array([5e18, 7.7], np.float32).astype(np.int64),
        "Cast",
    ),
    _openvino(
        "openvino/issues/35647",
        _two("Add", "uint8", 2),
        _BYTES,
        _BYTES["a"] + _BYTES["b"],
        "Add",
    ),
    _openvino(
        "openvino/issues/36178",
        _two("Mul", "uint8", 2),
        _BYTES,
        _BYTES["a"] * _BYTES["b"],
        "Mul",
    ),
    Proof(
        "onnxruntime/issues/23757",
        lambda: loading(
            graph(
                "(bool c, float[N,M] x) => (float[a] y) { y = If(c) <then_branch = t () => (float[b] z) "
                "{ z = Squeeze(x) }, else_branch = e () => (float[p,q] w) { w = Identity(x) }> }"
            ),
            OPENVINO,
        ),
        needs="openvino",
    ),
    Proof(
        "openvino/issues/30826",
        lambda: loading(
            graph(
                "(float[2,3,4] x, float[4] s) => (float[2,3,4] y) { y = LayerNormalization<axis=1>(x, s) }"
            ),
            OPENVINO,
        ),
        needs="openvino",
    ),
    Proof(
        "openvino/issues/22189",
        lambda: loading(
            graph("(float[2,3] x, float[3] s) => (float[2,3] y) { y = LayerNormalization(x, s) }"),
            OPENVINO,
        ),
        told=Failure(
            "load",
            {},
            "OpenVINO does not support the following ONNX operations: LayerNormalization",
            engine="openvino",
        ),
        at="2022.1.0",
        needs="openvino",
    ),
    _openvino(
        "openvino/issues/13491",
        graph("(float[2,3] x) => (int64[2,1] y) { y = ArgMin<axis=1>(x) }"),
        {"x": np.array([[3, 1, 2], [0, 5, -1]], np.float32)},
        [[1], [2]],
        "ArgMin",
        told=_diverged(engine="openvino", blame="kernel", operator="ArgMin", dtypes=("float32",)),
        at="2022.2.0",
    ),
    _openvino(
        "openvino/issues/16872",
        graph(
            "(float[2,4] x) => (float[2,1,2] y) <int64[1] s = {0}, int64[1] m = {2}, int64[1] e = {4}, "
            "int64[1] a = {2}, int64[1] one = {1}> { u = Unsqueeze(x, one) l = Slice(u, s, m, a) "
            "r = Slice(u, m, e, a) y = Add(l, r) }"
        ),
        {"x": np.arange(8, dtype=np.float32).reshape(2, 4)},
        [[[2, 4]], [[10, 12]]],
        "Unsqueeze",
        told=_diverged(
            engine="openvino", blame="kernel", operator="Unsqueeze", dtypes=("float32",)
        ),
        at="2022.3.0",
    ),
)
_CUDA = _ort(
    "onnxruntime/issues/25264",
    graph(
        "(float[1,1,4,4] x) => (float[1,1,2,2] y) <float[4] s = {1.0,1.0,0.5,0.5}> "
        '{ y = Resize<mode="cubic", antialias=1>(x, , s) }',
        18,
    ),
    {"x": np.ones((1, 1, 4, 4), np.float32)},
    np.ones((1, 1, 2, 2)),
    "Resize",
    told=_diverged(
        engine="onnxruntime",
        provider="cuda",
        blame="kernel",
        operator="Resize",
        attributes={"antialias": 1, "mode": "cubic"},
    ),
)
PROOFS = (*_TORCHSCRIPT, *_DYNAMO, *_ONNXRUNTIME, *_OPENVINO, _CUDA)
