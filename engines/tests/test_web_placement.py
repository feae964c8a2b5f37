"""Where nodes run, from the words of ONNX Runtime Web's log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_gate_engines.web.placement import PlacedNode, Placement, placement_of

HEAD = "2026-11-22 [V:onnxruntime:, session_state.cc:1316 VerifyEachNodeIsAssignedToAnEp]"
ALL_ON_CPU = f"{HEAD} All nodes placed on [CPUExecutionProvider]. Number of nodes: 1"


def model(path: Path, *nodes: onnx.NodeProto) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in "xy")
    stored = [numpy_helper.from_array(np.ones(2, np.int64), "w")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], stored)), path)
    return path


def test_a_model_that_runs_elsewhere_as_a_whole_has_its_nodes_named(tmp_path: Path) -> None:
    path = model(
        tmp_path / "m.onnx",
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"], "sum"),
    )
    assert placement_of([ALL_ON_CPU], path) == Placement(1, (PlacedNode("sum", "Add"),))


def test_only_what_computes_has_to_be_spoken_of(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", helper.make_node("Add", ["x", "x"], ["y"]))
    assert placement_of([], path) is None
    path = model(tmp_path / "constant.onnx", helper.make_node("Add", ["w", "w"], ["y"]))
    assert placement_of([], path) == Placement(0)
