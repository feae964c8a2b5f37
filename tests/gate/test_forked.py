"""A fork leaves to its parent what is its parent's."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnx_gate.workers.forked import run_forked

pytestmark = pytest.mark.process


class Holder:
    session: ort.InferenceSession
    itself: Any


def dropped(path: Path) -> None:
    """Leave a session that nothing but a collection of garbage ends, with threads of its own."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 4
    holder = Holder()
    holder.session = ort.InferenceSession(path, options)
    holder.session.run(None, {"x": np.ones((64, 64), np.float32)})
    holder.itself = holder


def test_a_collection_in_the_fork_ends_no_session_of_its_parent(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    path = tmp_path / "m.onnx"
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    gc.disable()
    try:
        dropped(path)
        answer, trouble = run_forked(lambda: {"done": gc.collect() >= 0}, 30)
    finally:
        gc.enable()
    assert (answer, trouble) == ({"done": True}, "")
