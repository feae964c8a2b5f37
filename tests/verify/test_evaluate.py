"""The evaluator of files: PyTorch's operators in it are ONNX's, and float64 is float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.verify.reference.evaluate import Evaluator
from onnx_gate.verify.reference.file import run_float64, run_moved
from onnx_gate.verify.reference.perturb import MovedRounding
from tests.support import onnx_files

RNG = np.random.default_rng(1)
IMAGE = (2, 4, 9, 7)
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "conv": ("Conv", (6, 4, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "grouped": ("Conv", (6, 2, 3, 3), {"group": 2, "dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    "same upper": ("Conv", (6, 4, 2, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ("Conv", (6, 4, 2, 4), {"auto_pad": "SAME_LOWER"}),
    "transposed": ("ConvTranspose", (4, 6, 3, 3), {"strides": [2, 2], "pads": [1, 0, 0, 1]}),
    "extended": (
        "ConvTranspose",
        (4, 6, 3, 3),
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "max": ("MaxPool", (), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}),
    "max, dilated": ("MaxPool", (), {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    "average": ("AveragePool", (), {"kernel_shape": [3, 2], "strides": [2, 1]}),
    "average, padded": ("AveragePool", (), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "average, counted": (
        "AveragePool",
        (),
        {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    ),
    "erf": ("Erf", (), {}),
    "gelu": ("Gelu", (), {}),
    "resize": ("Resize", (), {}),
    "fused": ("FusedGelu", (), {}),
    "gelu, tanh": ("Gelu", (), {"approximate": "tanh"}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_operator_is_the_one_of_onnx(tmp_path: Path, name: str) -> None:
    kind, shape, attributes = CASES[name]
    weights = {"w": RNG.normal(size=shape).astype(np.float32)} if shape else {}
    if kind == "Resize":
        weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
        node = helper.make_node(kind, ["x", "", "scales"], ["y"], mode="linear")
    elif kind == "FusedGelu":  # one that the evaluator does not know
        node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", alpha=1.5)
    else:
        node = helper.make_node(kind, ["x", *weights], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    path = tmp_path / "one.onnx"
    onnx.save(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
            ir_version=9,
        ),
        path,
    )
    feeds = {"x": RNG.normal(size=IMAGE).astype(np.float32)}
    (expected,) = ort.InferenceSession(str(path)).run(None, feeds)
    for wide in (False, True):
        (actual,) = Evaluator(path, wide=wide).run(feeds, 60)
        assert actual.dtype == (np.float64 if wide else np.float32)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_float64_is_nearer_than_rounding_and_moved_rounding_is_rounding(tmp_path: Path) -> None:
    onnx_files.network(tmp_path / "network.onnx")
    module = FileModule(tmp_path / "network.onnx", {"x": "x"})
    inputs = {"x": RNG.normal(size=(64, 8)).astype(np.float32)}
    (own,) = module.session.run(inputs)
    wide = run_float64(module, inputs)
    moved = run_moved(module, inputs, MovedRounding(0))
    assert wide is not None
    assert moved is not None
    exact = wide[1][0].numpy()
    assert 0 < np.abs(own - exact).max() < 1e-5
    np.testing.assert_allclose(exact.sum(axis=-1), 1.0, atol=1e-14)
    assert 0 < np.abs(moved[0] - exact).max() < 1e-5
    assert not np.array_equal(moved[0], run_moved(module, inputs, MovedRounding(1))[0])  # type: ignore[index]
