"""The candidate ``half``: every 16-bit result rounded as it is stored, and nothing else changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.half import FLOAT32, HalfRuntime, HalfSession
from onnx_gate.runtimes.half_graph import OUTPUTS, half_dtype
from onnx_gate.runtimes.onnxruntime import OnnxRuntime


def saved(tmp_path: Path, body: str, inputs: str = "float16[N, 4] x", more: str = "") -> Path:
    text = (
        f'<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1, "own" : 1]> '
        f"g ({inputs}) => (y) {{ {body} }} {more}"
    )
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), str(path))
    return path


def opened(path: Path, wide: Sequence[str] = ()) -> HalfSession:
    return HalfRuntime().open(path, RuntimeSpec("half", options={FLOAT32: tuple(wide)}), 1)


X = np.array([[100, 200, 300, -400], [1, 2, 3, 4]], np.float16)

BODIES = {
    "product": ("s = Mul(x, x)  y = Sqrt(s)", ""),
    "moved": ("s = Mul(x, x)  r = Transpose(s)  t = Transpose(r)  y = Sqrt(t)", ""),
    "function": ("y = own.length(x)", '<domain: "own", opset_import: ["" : 18]> length (a) => (c) '
                 "{ b = Mul(a, a)  c = Sqrt(b) }"),
    "body": (
        "t = Constant<value = bool {1}>()  y = If(t)<then_branch = a () => (float16[N, 4] c) "
        "{ b = Mul(x, x)  c = Sqrt(b) }, else_branch = d () => (float16[N, 4] e) { e = Identity(x) }>",
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_result_in_between_is_rounded(tmp_path: Path, name: str) -> None:
    """ONNX Runtime's CPU goes through float32, where the square of 300 has room."""
    path = saved(tmp_path, BODIES[name][0], more=BODIES[name][1])
    plain = OnnxRuntime().open(path, RuntimeSpec("onnxruntime"), 1).run({"x": X})[0]
    # Its kernels that only move values take 16 bits, and so round what they are given.
    assert np.isfinite(plain).all() == (name != "moved")
    with np.errstate(over="ignore"):
        expected = np.sqrt((X * X).astype(np.float16))
    np.testing.assert_array_equal(opened(path).run({"x": X})[0], expected)
    assert np.isinf(expected).sum() == 2


def test_nodes_in_float32_hand_on_what_they_computed(tmp_path: Path) -> None:
    path = saved(tmp_path, "[a] s = Mul(x, x)  [b] r = Neg(s)  [c] y = Abs(r)")
    names = [node.name or node.output[0] for node in onnx.load(path).graph.node]
    assert np.isinf(opened(path, names[:2]).run({"x": X})[0]).any()
    wide = opened(path, (*names, OUTPUTS)).run({"x": X})[0]
    np.testing.assert_array_equal(wide, np.square(X, dtype=np.float32))
    room = {each.watched.name: each for each in opened_ranges(path)}
    assert room["s"].largest == 160000
    assert room["s"].overflows
    assert not room["y"].overflows  # infinite before it was rounded: that is another's


def opened_ranges(path: Path) -> list:  # type: ignore[type-arg]
    session = opened(path)
    session.run({"x": X})
    return session.ranges


def test_an_operator_computes_inside_as_onnx_says(tmp_path: Path) -> None:
    """The mean of squares beyond float16 is in float32 there, and so is what is normalised."""
    path = saved(
        tmp_path,
        "v = Constant<value = float[4] {1, 1, 1, 1}>()  w = Cast<to = 10>(v)  "
        "n = LayerNormalization(x, w)  l = Constant<value = float[4] {0, 0, -65504, 0}>()  "
        "m = Cast<to = 10>(l)  a = Add(n, m)  y = Softmax(a)",
    )
    half = opened(path).run({"x": X})[0]
    plain = OnnxRuntime().open(path, RuntimeSpec("onnxruntime"), 1).run({"x": X})[0]
    assert np.isfinite(half).all()
    np.testing.assert_allclose(half, plain, rtol=2**-9)


def test_bfloat16_is_computed_that_the_cpu_has_no_kernels_for(tmp_path: Path) -> None:
    path = saved(tmp_path, "s = Mul(x, x)  y = Sqrt(s)", "bfloat16[N, 4] x")
    assert half_dtype(onnx.load(path)) == "bfloat16"
    given = X.astype(ml_dtypes.bfloat16)
    expected = np.sqrt((given * given).astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(opened(path).run({"x": given})[0], expected)


def test_an_empty_value_has_no_range_and_an_answer(tmp_path: Path) -> None:
    path = saved(tmp_path, "s = Mul(x, x)  y = Sqrt(s)")
    assert opened(path).run({"x": X[:0]})[0].shape == (0, 4)


def test_weights_alone_are_no_results_of_16_bits(tmp_path: Path) -> None:
    body = "w = Constant<value = float16[4] {1, 2, 3, 4}>()  v = Cast<to = 1>(w)  y = Mul(x, v)"
    assert half_dtype(onnx.load(saved(tmp_path, body, "float[N, 4] x"))) is None
    assert half_dtype(onnx.load(saved(tmp_path, "y = Mul(x, x)", "float[N, 4] x"))) is None
    body = "s = Cast<to = 10>(x)  y = Cast<to = 1>(s)"
    path = saved(tmp_path, body, "float[N, 4] x")
    assert half_dtype(onnx.load(path)) == "float16"
    assert np.isinf(opened(path).run({"x": np.full((1, 4), 7e4, np.float32)})[0]).all()


LOOPS = {
    "If": BODIES["body"][0],
    "Loop": (
        "n = Constant<value = int64 {3}>()  t = Constant<value = bool {1}>()  z, y = Loop(n, t, x)"
        "<body = l (int64 i, bool k, float16[N, 4] a) => (bool o, float16[N, 4] s, float16[N, 4] c) "
        "{ o = Identity(k)  s = Add(a, a)  b = Mul(s, a)  c = Sqrt(b) }>"
    ),
    "Scan": (
        "z, y = Scan<num_scan_inputs = 1, body = l (float16[4] a, float16[4] v) => (float16[4] s, "
        "float16[4] c) { s = Add(a, v)  b = Mul(v, v)  c = Sqrt(b) }>(first, x)"
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_values_inside_of_bodies_are_measured(tmp_path: Path, name: str) -> None:
    given = ", float16[4] first" if name == "Scan" else ""
    path = saved(tmp_path, LOOPS[name], inputs=f"float16[N, 4] x{given}")
    session = opened(path)
    feeds = {"x": X} | ({"first": X[1]} if given else {})
    answers = session.run(feeds)
    assert len(answers) == 1
    plain = OnnxRuntime().open(path, RuntimeSpec("onnxruntime"), 1).run(feeds)[0]
    assert answers[0].shape == plain.shape
    ranges = {each.watched.name: each for each in session.ranges}
    square = ranges["b"]
    # Of three iterations the last has the largest: 2 a^2 of a doubled twice.
    most = {"If": 400.0**2, "Loop": 2 * 1600.0**2, "Scan": 400.0**2}[name]
    assert square.largest == most
    assert square.overflows
    assert not ranges["s" if name != "If" else "c"].small


def test_the_sum_that_a_mean_divides_is_known(tmp_path: Path) -> None:
    path = saved(tmp_path, "m = ReduceMean<keepdims = 0>(x)  y = Mul(x, m)")
    session = opened(path)
    session.run({"x": np.full((40, 4), 500, np.float16)})
    mean = next(each for each in session.ranges if each.watched.name == "m")
    assert (mean.largest, mean.total) == (500, 500 * 160)
    assert not mean.overflows
