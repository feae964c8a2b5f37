"""LiteRT's converter is a program of an environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate_engines.litert import LiteRt

pytest.importorskip("ai_edge_litert", reason="litert is not installed")


@pytest.mark.process
def test_the_converter_finds_the_programs_that_were_installed_with_it(tmp_path: Path) -> None:
    for name, line in (
        ("onnx2tf", "exec onnxsim-here"),
        ("onnxsim-here", "echo ERROR: it ran; exit 1"),
    ):
        path = tmp_path / "environment" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    (tmp_path / "linked").symlink_to(tmp_path / "environment" / "onnx2tf")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "graph", ends[:1], ends[1:])
    model = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), str(model))
    spec = RuntimeSpec("litert", options={"converter": str(tmp_path / "linked")})
    with pytest.raises(GateError, match="onnx2tf does not convert the file: it ran"):
        LiteRt().open(model, spec, 1)


def _difference(first: str, second: str, output: str) -> bytes:
    """A file that subtracts its inputs, of three numbers each, and has no signature."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    flatbuffers = pytest.importorskip("flatbuffers")

    def tensor(name: str) -> Any:
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name.encode(), [3], 0
        made.type = schema.TensorType.FLOAT32
        return made

    code, node, graph, model = (
        getattr(schema, name)() for name in ("OperatorCodeT", "OperatorT", "SubGraphT", "ModelT")
    )
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SUB
    code.version = 1
    node.opcodeIndex, node.inputs, node.outputs = 0, [0, 1], [2]
    node.builtinOptionsType = schema.BuiltinOptions.SubOptions
    node.builtinOptions = schema.SubOptionsT()
    graph.tensors = [tensor(name) for name in (first, second, output)]
    # In another order than in the ONNX file.
    graph.inputs, graph.outputs, graph.operators = [1, 0], [2], [node]
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [schema.BufferT()]
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.process
def test_a_file_without_a_signature_is_run_by_the_names_of_its_tensors(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y", "z")]
    node = helper.make_node("Sub", ["x", "y"], ["z"])
    graph = helper.make_graph([node], "graph", ends[:2], ends[2:])
    model = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), str(model))
    converter = tmp_path / "onnx2tf"
    converter.write_text(f"#!/bin/sh\ncp {tmp_path}/made.tflite $4/model_float32.tflite\n")
    converter.chmod(0o755)
    spec = RuntimeSpec("litert", options={"converter": str(converter)})
    (tmp_path / "made.tflite").write_bytes(_difference("serving_default_x:0", "y", "other"))
    session = LiteRt().open(model, spec, 1)
    x, y = np.array([1, 2, 3], np.float32), np.array([5, 7, 11], np.float32)
    np.testing.assert_array_equal(session.run({"x": x, "y": y})[0], x - y)
    (tmp_path / "made.tflite").write_bytes(_difference("a", "b", "z"))
    with pytest.raises(GateError, match="no signature, and its tensors b, a do not say which is x"):
        LiteRt().open(model, spec, 1)
