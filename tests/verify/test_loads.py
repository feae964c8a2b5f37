"""From which version of a package on a file loads, by tables out of what they ship, or measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnx_gate.findings.finding import Finding
from onnx_gate.manifest.load import load_bytes
from onnx_gate.manifest.problems import ManifestError
from onnx_gate.manifest.values.targets import Target
from onnx_gate.verify.inspect.loads import inspect_loads, lacking


def one_node(
    op_type: str, opset: int, dtype: int = TensorProto.FLOAT, ir: int = 8
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, dtype, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def said(model: onnx.ModelProto, least: tuple[int, int], package: str = "onnxruntime") -> Finding:
    (finding,) = inspect_loads([Target(package, least)], model, None)
    return finding


def loads_here(model: onnx.ModelProto) -> bool:
    try:
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def test_an_operator_set_that_older_versions_do_not_read() -> None:
    model = one_node("Relu", 20)
    assert said(model, (1, 17)).severity == "note"
    finding = said(model, (1, 16))
    assert (finding.code, finding.severity) == ("OG432", "error")
    assert "loads from onnxruntime 1.17 on; opset 20 is what older ones lack" in finding.message
    assert "export: {opset: N}" in finding.message


def test_an_ir_version() -> None:
    assert (
        "from onnxruntime 1.18 on; IR version 10"
        in said(one_node("Relu", 13, ir=10), (1, 16)).message
    )


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("op_type", ["Relu", "Erf", "Sin", "Not", "IsInf", "Round", "Gelu"])
def test_the_installed_version_is_right_about_types(op_type: str, dtype: int) -> None:
    model = one_node(op_type, 20, TensorProto.BOOL if op_type == "Not" else dtype)
    if op_type == "IsInf":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    assert (lacking(model)[-1] is None) == loads_here(model)


def test_a_node_is_named_with_its_type() -> None:
    finding = said(one_node("Erf", 20, TensorProto.BFLOAT16), (1, 17))
    assert finding.severity == "error"
    assert "Erf at opset 20 in bfloat16" in finding.message


def test_a_browser_has_the_kernels_of_its_version_and_no_arrays_of_some_types() -> None:
    assert (
        "loads from onnxruntime-web 1.17 on; opset 20"
        not in said(one_node("Relu", 20), (1, 17), "onnxruntime-web").message
    )
    finding = said(one_node("RMSNormalization", 23), (1, 20), "onnxruntime-web")
    assert finding.severity == "error"
    assert "loads from onnxruntime-web 1.23 on; opset 23 is what older ones lack" in finding.message
    model = one_node("Identity", 19, TensorProto.BFLOAT16)
    assert said(model, (1, 17)).severity == "note"
    finding = said(model, (1, 17), "onnxruntime-web")
    assert "an array of bfloat16, as x is, is what they lack" in finding.message


@pytest.mark.parametrize("package", ["openvino", "opencv"])
@pytest.mark.parametrize("op_type", ["Relu", "Erf", "Gelu", "Det", "IsInf", "Bernoulli", "Hardmax"])
def test_the_installed_engine_is_right_about_operators(package: str, op_type: str) -> None:
    opened = {"openvino": _in_openvino, "opencv": _in_opencv}[package]
    model = one_node(op_type, 20)
    if op_type == "Det":
        for value in model.graph.input:
            value.type.tensor_type.shape.dim[0].dim_value = 3
        del model.graph.output[0].type.tensor_type.shape.dim[:]
    if op_type == "IsInf":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    assert (lacking(model, package)[-1] is None) == opened(model)
    if not opened(model):
        finding = said(model, (2026, 0) if package == "openvino" else (5, 0), package)
        assert finding.severity == "error"
        assert f"has all of its operators; {op_type} is what they lack" in finding.message


def _in_openvino(model: onnx.ModelProto) -> bool:
    openvino = pytest.importorskip("openvino")
    try:
        openvino.Core().read_model(model.SerializeToString())
    except Exception:
        return False
    return True


def _in_opencv(model: onnx.ModelProto) -> bool:
    cv2 = pytest.importorskip("cv2")
    try:
        data = np.frombuffer(model.SerializeToString(), np.uint8)
        return not cv2.dnn.readNetFromONNX(data).empty()
    except cv2.error:
        return False


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("onnxruntim>=1.17", "did you mean 'onnxruntime'"),
        ("onnxruntime>=1.2", "write onnxruntime>=1.16"),
        ("onnxruntime-web>=1.9", "write onnxruntime-web>=1.17"),
        ("openvin", "did you mean 'openvino'"),
        ("onnxruntime=1.17", "write onnxruntime>=1.17"),
        ("tensorrt>=10", "nothing is known"),
    ],
)
def test_a_spelling_is_checked(target: str, words: str) -> None:
    text = f'version: 1\nmodels:\n  m:\n    model: "m.py:M"\n    inputs: {{}}\n    targets: ["{target}"]\n'
    with pytest.raises(ManifestError) as caught:
        load_bytes(text.encode(), Path("onnx-gate.yml"))
    assert words in str(caught.value.problems[0])
    assert caught.value.problems[0].line == 6
