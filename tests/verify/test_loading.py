"""What is said of a file that an engine does not load."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.verify.load_errors import ExplainedLoads
from onnx_gate.verify.loading import Loading
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.source_lines import STACK_TRACE
from onnx_gate.verify.stopwatch import Clock


def test_a_node_that_is_no_valid_onnx_has_the_line_that_it_was_made_of(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("x = 1\nx[i] = 2\n")
    kinds = {"x": TensorProto.FLOAT, "i": TensorProto.INT32, "u": TensorProto.FLOAT}
    shapes = {"x": [4], "i": [2, 1], "u": [2]}
    inputs = [helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in "xiu"]
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], name="node_put")
    entry = node.metadata_props.add()
    entry.key = STACK_TRACE
    entry.value = f'File "{tmp_path / "m.py"}", line 2, in forward\n    x[i] = 2'
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([node], "g", inputs, [output])
    opsets = [helper.make_opsetid("", 18)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    spec = RuntimeSpec("onnxruntime")
    with pytest.raises(GateError, match="takes no int32 as its indices") as caught:
        Loading(errors=ExplainedLoads(tmp_path)).open(path, spec, 1, spec.label)
    assert caught.value.code == "OG303"
    assert caught.value.source == ("m.py", 2)
    assert "with other operators" in caught.value.remedy


def test_a_kernel_that_is_missing_once_it_is_run_is_missing(tmp_path: Path) -> None:
    """ONNX Runtime registers GRU in float64, and has nothing to compute it with."""
    graph = onnx.parser.parse_graph(
        "g (double[s,b,2] x, double[1,9,2] w, double[1,9,3] r) => (double[s,1,b,3] y) "
        "{ y = GRU<hidden_size=3>(x, w, r) }"
    )
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    shapes = {"x": (4, 1, 2), "w": (1, 9, 2), "r": (1, 9, 3)}
    arrays = {name: np.ones(shape, np.float64) for name, shape in shapes.items()}
    spec = RuntimeSpec("onnxruntime")
    with Sessions(path, [spec], 1, Clock()) as sessions:
        assert sessions.ask(spec.label, arrays, {name: name for name in arrays}) == (None, None)
    (failed,) = sessions.results()
    assert failed.error is not None
    assert failed.error.code == "OG202"
    assert failed.error.message == "onnxruntime: it has no kernel for GRU in float64"


def test_for_few_cases_weights_stay_where_the_file_has_them(tmp_path: Path) -> None:
    """Packed for kernels they take their own memory once more, and longer than a few runs."""
    side = 2048
    weights = np.full((side, side), 0.5, np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", side]) for name in "xy"]
    stored = onnx.numpy_helper.from_array(weights, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [stored]
    )
    opsets = [helper.make_opsetid("", 18)]
    path = tmp_path / "m.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, str(path), save_as_external_data=True, location="m.data")
    spec, process, took = RuntimeSpec("onnxruntime"), psutil.Process(), []
    with ExitStack() as opened:  # all stay open: what one has given back would be the next one's
        for few in (False, False, True):
            before = process.memory_info().rss
            sessions = opened.enter_context(Sessions(path, [spec], 1, Clock(), few=few))
            took.append(process.memory_info().rss - before)
            answers, _ = sessions.ask(spec.label, {"x": np.ones((1, side), np.float32)}, {"x": "x"})
            assert answers is not None
            assert (answers[0] == side / 2).all()
    _, packed, mapped = took
    assert mapped < weights.nbytes / 2 < packed
