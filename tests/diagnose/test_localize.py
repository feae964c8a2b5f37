"""Where an error is born: one case of each kind of those that ``accuracy/localize.py`` measures."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.accuracy.diagnose_cases import CASES
from benchmarks.accuracy.diagnose_cases import graphs as g
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.diagnose.localize.matching import as_called, bare_name
from onnx_gate.diagnose.repro.replay import Limits, replay
from onnx_gate.diagnose.repro.write import make_repro
from onnx_gate.diagnose.trace.record_export import silence_exporters
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.subject import Subject
from tests.support.diverging import make

NAMED = {case.name: case for case in CASES}

KINDS = {
    "a layer": "dynamo/softmax-axis",
    "one of many operators that a norm was folded into": "dynamo/folded-scale",
    "a weight": "dynamo/query-stale",
    "many wrong nodes, the first is named": "dynamo/all-gelus",
    "several outputs": "dynamo/topk-smallest",
    "the branch of an If": "dynamo/branch",
    "a function of the model's own": "dynamo/function-body",
    "a recurrent layer": "dynamo/gru-reset",
    "a kernel": "dynamo/nan-pooling",
    "a custom exporter's lowering of several nodes": "custom/silu",
    "TorchScript, by scope": "torchscript/epsilon",
    "TorchScript, a number baked in": "torchscript/number-baked",
    "the body of a Loop": "torchscript/loop",
    "a committed file, names kept": "names/stale-weights",
    "a committed file, converted to another opset": "converted/gelu-tanh",
    "a committed file, all renamed": "renamed/relu-dropped",
    "a committed file, all renamed, an integer operator": "renamed/remainder",
    "a traced file, all renamed": "traced/scale",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_guilty_node_is_named_first(kind: str, tmp_path: Path) -> None:
    case = NAMED[KINDS[kind]]
    with silence_exporters():
        subject = case.make(tmp_path)
    located = localize(subject)
    assert located.node is not None
    assert located.node.op_type in case.guilty_op, located.note
    if case.module is not None:
        assert located.node.module == case.module
    assert located.source is not None
    assert located.source.file == "models.py"
    assert case.line in located.source.code
    written = Path(subject.workspace, "models.py").read_text().splitlines()
    assert located.source.code.strip() in written[located.source.line - 1]


@pytest.mark.parametrize(
    ("name", "kinds"), [("dynamo/branch", {"If"}), ("torchscript/loop", {"Constant", "Loop"})]
)
def test_of_a_subgraph_the_node_that_holds_it_is_cut_out(
    name: str, kinds: set[str], tmp_path: Path
) -> None:
    with silence_exporters():
        subject = NAMED[name].make(tmp_path)
    subject.folder.mkdir(exist_ok=True)
    located = localize(subject)
    repro = make_repro(subject, located)
    assert repro.path is not None, repro.reason
    model = onnx.load(str(repro.path / "model.onnx"))
    assert {node.op_type for node in model.graph.node} == kinds
    assert len(model.graph.node) < len(subject.exported.proto.graph.node)
    assert any(not each.agrees for each in replay(repro.path, subject.runtime, Limits()))


class Angle(nn.Module):
    """The exporter writes nine nodes for the operator, and is wrong where y is 0 and x below it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.atan2(x[:, 0], x[:, 1]) * 2


def test_of_nodes_for_one_operator_none_is_blamed_for_not_being_all(tmp_path: Path) -> None:
    x = np.array([[0.0, -2.0], [1.0, 2.0], [-1.0, -3.0]], np.float32)
    with silence_exporters():
        subject = make(tmp_path, Angle(), x)
    located = localize(subject)
    assert located.node is not None
    assert located.node.operator == "atan2"
    assert located.node.op_type != "Div"
    assert "which of them is wrong is not shown" in located.note


@pytest.mark.parametrize(
    ("operator", "called"),
    [
        ("aten.native_layer_norm.default", "native_layer_norm"),
        ("aten._log_softmax.default", "log_softmax"),
        ("aten.relu_.default", "relu"),
        ("Softmax", "Softmax"),
    ],
)
def test_an_operator_is_told_as_pytorch_calls_it(operator: str, called: str) -> None:
    assert as_called(operator) == called
    assert bare_name(operator) == called.replace("_", "").lower()


# -- memory

SIZE = (4, 256, 256)
BYTES = 4 * 4 * 256 * 256
DEPTH = 14


class Deep(nn.Module):
    """Some forty values of a mebibyte, and no weights."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(DEPTH):
            x = F.gelu(x) * 1.1 - 0.3
        return x


def deep(folder: Path, form: str) -> Subject:
    """A wrong GELU near the end of the graph."""
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    torch.manual_seed(0)
    subject = make(folder, Deep(), x)
    path = subject.exported.path
    proto = onnx.load(str(path))
    g.attribute("Gelu", DEPTH - 2, approximate="tanh")(proto)
    if form == "file":
        g.strip(proto)
        g.rename(proto)
    onnx.save(proto, str(path))
    exported = dataclasses.replace(subject.exported, proto=proto)
    if form == "file":
        exported = Exported(path, "file", proto)
    return dataclasses.replace(subject, exported=exported)


def held(subject: Subject, memory: int) -> int:
    """The most bytes that Python and NumPy held while localising with this budget."""
    tracemalloc.start()
    try:
        located = localize(dataclasses.replace(subject, memory=memory))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert located.node is not None
    assert located.node.op_type == "Gelu"
    assert not list((subject.folder / "values").glob("*.bin"))
    return peak


@pytest.mark.parametrize("form", ["dynamo", "file"])
def test_the_values_that_are_held_keep_to_the_budget(form: str, tmp_path: Path) -> None:
    subject = deep(tmp_path, form)
    budget = 8 * BYTES
    most, least = held(subject, 2**30), held(subject, budget)
    # Without a limit every value of PyTorch's is held; beside the budget there is a node's work.
    assert most > 2 * DEPTH * BYTES
    assert least < budget + 10 * BYTES
