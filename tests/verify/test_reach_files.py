"""Files that are wrong where ordinary inputs never come, held against files: each beside its own copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.report.model import ModelResult
from tests.support.gate import run_few

pytestmark = [pytest.mark.process, pytest.mark.slow]

Nodes = list[onnx.NodeProto]


def _file(path: Path, nodes: Nodes, batch: int | str = "batch", **numbers: Any) -> None:
    """Write a file of a layer from 24 inputs to ``h`` of 8, and what nodes make of that."""
    random = np.random.default_rng(0)
    numbers["w"] = (0.2 * random.normal(size=(24, 8))).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), *nodes],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def clipped(path: Path, wrong: bool, batch: int | str = "batch") -> None:
    """Clips where no draw comes, or does not."""
    node = helper.make_node("Identity", ["h"], ["y"])
    if not wrong:
        node = helper.make_node("Clip", ["h", "", "most"], ["y"])
    _file(path, [node], batch, most=np.float32(9.5))


def lone(path: Path, wrong: bool) -> None:
    """Is given one row."""
    clipped(path, wrong, 1)


def narrow(path: Path, wrong: bool) -> None:
    """Saturates at the ends of eight bits, or of sixteen."""
    nodes = [
        helper.make_node("QuantizeLinear", ["h", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    zero = np.int16(0) if wrong else np.int8(0)
    _file(path, nodes, scale=np.float32(0.08), zero=zero)


def blank(path: Path, wrong: bool) -> None:
    """Has a class that hardly ever wins, and an answer of its own for it."""
    nodes = [
        helper.make_node("Add", ["h", "bias"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("Cast", ["best"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Equal", ["best", "blank"], ["is"]),
        helper.make_node("Where", ["is", "other", "number"], ["y"]),
    ]
    bias = np.array([0, 0, 0, -8, 0, 0, 0, 0], np.float32)
    _file(path, nodes, bias=bias, blank=np.int64(3), other=np.float32(3 if wrong else -1))


def larger(path: Path, wrong: bool) -> None:
    """Takes the larger of two, of which one hardly ever is."""
    nodes = [
        helper.make_node("Split", ["h"], ["one", "other"], axis=1, num_outputs=2),
        helper.make_node("Sub", ["other", "gap"], ["less"]),
        helper.make_node("Max", ["one", "less"], ["y"]),
    ]
    if wrong:
        nodes[-1] = helper.make_node("Identity", ["one"], ["y"])
    _file(path, nodes, gap=np.float32(14))


WRITERS: tuple[Callable[[Path, bool], None], ...] = (clipped, lone, narrow, blank, larger)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    folder, entries = Path(tmp_path_factory.mktemp("files")), {}
    for write in WRITERS:
        name = write.__name__
        first = 1 if write is lone else "batch"
        given = f"inputs: {{x: {{dtype: float32, shape: [{first}, 24], range: [-3, 3]}}}}"
        for kind in ("right", "wrong"):
            write(folder / f"{name}-{kind}.onnx", kind == "wrong")
        shutil.copy(folder / f"{name}-right.onnx", folder / f"{name}-copy.onnx")
        for one, other in (("right", "wrong"), ("wrong", "right"), ("right", "copy")):
            entries[f"{name}-{one}-{other}"] = (
                f"reference: {name}-{one}.onnx, onnx: {name}-{other}.onnx, {given}"
            )
    return run_few(folder, "", entries)


@pytest.mark.parametrize("name", [write.__name__ for write in WRITERS])
def test_what_either_file_decides_is_sought(results: Mapping[str, ModelResult], name: str) -> None:
    copy = results[f"{name}-right-copy"]
    assert copy.verdict == "pass", [f.message for f in copy.findings]
    for pair in ("right-wrong", "wrong-right"):
        checks = results[f"{name}-{pair}"].checks
        diverged = {check.case for check in checks if check.verdict == "diverged"}
        assert diverged
        assert all(each.startswith("reached/file/") for each in diverged)
