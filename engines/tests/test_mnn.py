"""MNN: what its Python interface has no array for is handed over in another way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.open import open_session

pytestmark = pytest.mark.process
pytest.importorskip("MNN", reason="mnn is not installed: pip install 'onnx-gate[mnn]'")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_come_as_they_are(dtype: str, tmp_path: Path) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = helper.make_tensor_value_info("x", kind, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "f"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "graph", [x], [y])
    opsets = [helper.make_opsetid("", 18)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    values = np.array([[1, 2, 3], [4, 5, 100]]).astype(dtype)
    if np.dtype(dtype).kind == "i":
        values = -values
    (squares,) = open_session(path, RuntimeSpec("mnn"), 1).run({"x": values})
    np.testing.assert_array_equal(squares, values.astype(np.float32) ** 2, strict=True)
