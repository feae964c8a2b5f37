"""ncnn: a file is converted by its own pnnx, and what it has no form of is an error with the name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, Session
from onnx_gate.runtimes.open import open_session

FLOAT = TensorProto.FLOAT

pytestmark = pytest.mark.process
pytest.importorskip("ncnn", reason="ncnn is not installed: pip install 'onnx-gate[ncnn]'")


def written(
    folder: Path,
    nodes: list[onnx.NodeProto],
    shape: list[Any],
    constants: dict[str, Array],
    kinds: tuple[int, int] = (FLOAT, FLOAT),
) -> Path:
    """Write a file from ``x`` to ``y``; its weights are beside it."""
    taken = [helper.make_tensor_value_info("x", kinds[0], shape)]
    given = [helper.make_tensor_value_info("y", kinds[1], None)]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", taken, given, stored)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("shop", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    path = folder / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="weights", size_threshold=0)
    return path


@pytest.fixture
def convolution(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "weights"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Elu", ["features"], ["y"], alpha=0.7),
    ]
    return written(tmp_path, nodes, ["batch", 3, "height", 8], {"weights": weights})


def images(batch: int, height: int) -> dict[str, Array]:
    drawn = np.random.default_rng(batch).normal(size=(batch, 3, height, 8))
    return {"x": drawn.astype(np.float32)}


def error(session: Session, model: Path, feeds: dict[str, Array]) -> float:
    expected: Array = onnxruntime.InferenceSession(str(model)).run(None, feeds)[0]
    (actual,) = session.run(feeds)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def test_it_answers_at_any_size_says_what_it_turns_and_leaves_nothing_beside_the_file(
    convolution: Path,
) -> None:
    session = open_session(convolution, RuntimeSpec("ncnn"), 1)
    feeds = images(2, 8)
    given = feeds["x"].copy()
    assert error(session, convolution, feeds) < 1e-6
    np.testing.assert_array_equal(feeds["x"], given)
    assert error(session, convolution, images(5, 6)) < 1e-6
    (finding,) = getattr(session, "findings", ())
    assert (finding.code, finding.data["batched"]) == ("OG309", ["x", "y"])
    with pytest.raises(Refusal, match="the size of x is 4 on axis 1"):
        session.run({"x": np.zeros((2, 4, 8, 8), np.float32)})
    with pytest.raises(Refusal, match="the input x is empty, which ncnn does not take"):
        session.run(images(0, 8))
    session.close()
    assert {path.name for path in convolution.parent.iterdir()} == {"model.onnx", "weights"}


def test_what_pnnx_says_it_does_not_support_is_no_conversion(convolution: Path) -> None:
    """It writes a softmax over another axis, and ends with status 0."""
    model = onnx.load(str(convolution))
    model.graph.node[1].CopyFrom(helper.make_node("Softmax", ["features"], ["y"], axis=0))
    onnx.save(model, str(convolution))
    session = open_session(convolution, RuntimeSpec("ncnn"), 1)
    with pytest.raises(GateError, match="softmax along batch axis 0 is not supported") as refused:
        session.run(images(2, 8))
    assert refused.value.code == "OG303"


def test_float16_is_used_where_it_is_asked_for_and_said(convolution: Path) -> None:
    spec = RuntimeSpec("ncnn", options={"fp16": True})
    assert spec.label == "ncnn[fp16=True]"
    weights = np.full((8, 8), 1.0 + 2.0**-12, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["y"])]
    product = written(convolution.parent, nodes, [1, 8], {"weights": weights})
    feeds: dict[str, Array] = {"x": np.ones((1, 8), np.float32)}
    session = open_session(product, spec, 1)
    assert 1e-5 < error(session, product, feeds) < 1e-2
    assert [finding.data for finding in getattr(session, "findings", ())] == [{"precision": "fp16"}]
    assert error(open_session(product, RuntimeSpec("ncnn"), 1), product, feeds) < 1e-6


@pytest.mark.parametrize(
    ("node", "constants", "code", "message"),
    [
        (("Haggle", {"domain": "shop"}), {}, "OG202", "Haggle (node 'it'). Nothing was run."),
        (("Gather", {"axis": 1}), {"c": np.array([[2, 0], [1, 1]])}, "OG202", "Gather (node 'it')"),
        (("Identity", {}), {}, "OG303", "pnnx does not convert the file (SIGSEGV): "),
    ],
    ids=["of another domain", "not ncnn's", "crash of the converter"],
)
def test_what_is_not_converted_is_named_before_anything_runs(
    node: tuple[str, dict[str, Any]],
    constants: dict[str, Array],
    code: str,
    message: str,
    tmp_path: Path,
) -> None:
    op_type, attributes = node
    nodes = [helper.make_node(op_type, ["x", *constants], ["y"], "it", **attributes)]
    path = written(tmp_path, nodes, [1, 3], constants)
    with pytest.raises(GateError) as refused:
        open_session(path, RuntimeSpec("ncnn"), 1)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value


@pytest.mark.parametrize(
    ("shape", "kind", "options", "code", "message"),
    [
        ([1, 3], TensorProto.INT64, {}, "OG303", "floating-point numbers only, and x is int64"),
        ([], FLOAT, {}, "OG303", "no single numbers as inputs: give x an axis of size 1"),
        ([1, 3], FLOAT, {"fp16": "yes"}, "OG302", "no option fp16: yes; it takes fp16: true or"),
        ([1, 3], FLOAT, {"precision": "low"}, "OG302", "no option precision; it takes fp16"),
    ],
)
def test_what_it_cannot_take_is_refused(
    shape: list[Any], kind: int, options: dict[str, Any], code: str, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [helper.make_node("Neg", ["x"], ["y"])], shape, {}, (kind, kind))
    with pytest.raises(GateError) as refused:
        open_session(path, RuntimeSpec("ncnn", options=options), 1)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value


def test_more_axes_than_it_has_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [1, 2, 2, 2, 3], {})
    session = open_session(path, RuntimeSpec("ncnn"), 1)
    with pytest.raises(Refusal, match="x has 5 axes, of which ncnn has 4"):
        session.run({"x": np.zeros((1, 2, 2, 2, 3), np.float32)})
