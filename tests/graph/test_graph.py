"""Constants where they lie, graphs walked with their bodies, and nodes run and cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.graph.constants import Constants, external_files, move_out, stored_bytes
from onnx_gate.graph.edit import fed, with_outputs
from onnx_gate.graph.extract import between, cut, open_ends
from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.run_node import Runner, run_until
from onnx_gate.graph.session import PlainSession
from onnx_gate.graph.walk import all_nodes, constants, flattened, opset_of
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.file_module import PLAIN

ARRAYS: dict[str, Any] = {
    "odd": np.arange(5, dtype=np.int8),
    "single": np.linspace(-1, 1, 7, dtype=np.float32),
    "brain": np.linspace(-1, 1, 6).astype(ml_dtypes.bfloat16).reshape(2, 3),
    "four": np.array([-8, 7, 3], ml_dtypes.int4),
    "eight": np.linspace(-1, 1, 6).astype(ml_dtypes.float8_e4m3fn),
    "flags": np.array([[True, False]]),
    "empty": np.zeros((0, 3), np.float32),
}


def outside(folder: Path, *, packed: bool = False) -> dict[str, TensorProto]:
    """Write the arrays beside one another, one after the other where ``packed``."""
    tensors = {name: numpy_helper.from_array(array, name) for name, array in ARRAYS.items()}
    with open(folder / "w.data", "wb") as file:
        for tensor in tensors.values():
            if not packed:
                move_out(tensor, folder, file, 0)
                continue
            offset, raw = file.tell(), tensor.raw_data
            file.write(raw)
            onnx.external_data_helper.set_external_data(tensor, "w.data", offset, len(raw))
            tensor.ClearField("raw_data")
    return tensors


@pytest.mark.parametrize("packed", [False, True])
def test_external_data_is_mapped_whatever_its_type_and_place(packed: bool, tmp_path: Path) -> None:
    read = Constants(outside(tmp_path, packed=packed), tmp_path)
    for name, array in ARRAYS.items():
        assert read.array(name).dtype == array.dtype
        assert read.array(name).flags.aligned
        assert read.array(name).tobytes() == array.tobytes(), name
        assert numpy_helper.to_array(read.embedded(name)).tobytes() == array.tobytes(), name
    assert read.array("single").flags.owndata == packed  # copied where it is not aligned


def test_weights_with_a_second_name_are_read_and_those_elsewhere_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    tensors = outside(folder)
    os.link(folder / "w.data", tmp_path / "again")
    assert Constants(tensors, folder).array("single").size == 7
    for replace in (lambda: os.symlink(tmp_path / "again", folder / "w.data"), lambda: None):
        (folder / "w.data").unlink()
        replace()
        with pytest.raises(ValueError, match="single is not beside the file"):
            Constants(tensors, folder).array("single")


def model() -> onnx.ModelProto:
    """A branch whose body calls a value as the graph does, behind a function of the file."""
    body = helper.make_graph(
        [helper.make_node("Add", ["y", "w"], ["z"], "inner")],
        "body",
        [],
        [helper.make_empty_tensor_value_info("z")],
        [numpy_helper.from_array(np.full(3, 10, np.float32), "w")],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["y"], "call", domain="own"),
        helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["yes"], ["b"], "branch", then_branch=body, else_branch=body),
        helper.make_node("Mul", ["b", "w"], ["out"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    twice = helper.make_function(
        "own", "Twice", ["a"], ["c"], [helper.make_node("Add", ["a", "a"], ["c"])], opsets[:1]
    )
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[twice])


X = np.array([1, 2, 3], np.float32)
OUT = (2 * X + 10) * np.arange(3)


def test_a_model_is_walked_with_its_bodies_and_functions() -> None:
    assert sorted(node.op_type for node in all_nodes(model())) == [
        *("Add", "Add", "Add", "Constant", "If", "Mul", "Twice")
    ]
    assert set(constants(model())) == {"w", "yes"}
    assert opset_of(model()) == 18
    flat = flattened(model())
    assert not flat.functions
    assert len(set(constants(flat))) == 4
    np.testing.assert_array_equal(PlainSession(flat).run({"x": X})[0], OUT)


def test_a_number_that_calls_of_a_function_give_is_known_where_it_is_inlined() -> None:
    text = """<ir_version: 10, opset_import: ["": 18, "own": 1]>
    g (float[2] x) => (float[2] y) { y = own.F <most = 4.0> (x) }
    <domain: "own", opset_import: ["": 18]>
    F <most> (x) => (y) { high = Constant <value_float: float = @most> ()  y = Clip (x, , high) }
    """
    written = onnx.parser.parse_model(text)
    assert constants(written) == {}
    assert [numpy_helper.to_array(t) for t in constants(flattened(written)).values()] == [4.0]


def test_a_graph_is_run_node_by_node_changed_and_cut(tmp_path: Path) -> None:
    graph = read_graph(model(), tmp_path / "m.onnx")
    runner = Runner(graph, PLAIN, tmp_path)
    np.testing.assert_array_equal(run_until(runner, {"x": X}, ["out"])["out"], OUT)
    other = run_until(runner, {"x": X}, ["out"], {"b": np.ones(3)})
    np.testing.assert_array_equal(other["out"], np.arange(3))
    branch = graph.producer["b"]
    assert branch.inputs == ("yes", "y")
    inside = dict(graph.bodies(branch))["then_branch"]
    made = runner.inside(inside).run(inside.nodes[0], {"y": X})
    np.testing.assert_array_equal(made["z"], X + 10)
    nodes = between(graph, ["out"], ["b"])
    assert [node.op_type for node in nodes] == ["Mul"]
    assert open_ends(graph, nodes) == ["b"]
    part = cut(model(), graph, nodes, {"b": X}, {"out": OUT.astype(np.float32)})
    np.testing.assert_array_equal(PlainSession(part).run({"b": X})[0], X * np.arange(3))


def test_a_node_that_would_end_the_process_is_not_run(tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in "ab"]
    outputs = [helper.make_tensor_value_info("c", TensorProto.INT64, None)]
    joined = helper.make_graph(
        [helper.make_node("Concat", ["a", "b"], ["c"], axis=0)], "joined", inputs, outputs
    )
    opsets = [helper.make_opsetid("", 18)]
    proto = helper.make_model(joined, opset_imports=opsets, ir_version=10)
    graph = read_graph(proto, tmp_path / "m.onnx")
    runner, ones = Runner(graph, PLAIN, tmp_path), np.ones((2, 8), np.int64)
    [node] = graph.nodes
    assert runner.run(node, {"a": ones, "b": np.zeros(0, np.int64)}) == {"c": None}
    np.testing.assert_array_equal(runner.run(node, {"a": ones, "b": ones[:1]})["c"], ones[[0] * 3])


def test_a_model_is_given_values_and_asked_for_others() -> None:
    changed, taken = fed(flattened(model()), {"b": X, "unread": X})
    assert set(taken) == {"b"}
    session = PlainSession(with_outputs(changed, ["out", "b"]))
    out, b = session.run({"x": X, "nobody's": X, **taken})
    np.testing.assert_array_equal(out, X * np.arange(3))
    np.testing.assert_array_equal(b, X)
    with pytest.raises(Refusal):
        PlainSession(with_outputs(changed, ["nothing"]))
    with pytest.raises(Refusal):
        session.run({"x": X})


def test_what_lies_outside_is_counted_without_reading_it(tmp_path: Path) -> None:
    big = model()
    (weight,) = big.graph.initializer
    with open(tmp_path / "w.data", "wb") as file:
        move_out(weight, tmp_path, file, 0)
    assert external_files(big, tmp_path) == {tmp_path / "w.data"}
    assert stored_bytes(big) == big.ByteSize() + 12
