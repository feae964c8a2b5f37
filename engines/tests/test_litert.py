"""LiteRT's converter is a program of an environment of its own."""

from __future__ import annotations

from pathlib import Path

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
