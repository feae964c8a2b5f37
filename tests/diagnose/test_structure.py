"""Faults of a graph's structure, in committed files of a transformer without a name that helps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from torch import Tensor, nn

from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.diagnose.localize.lowering import lower
from onnx_gate.diagnose.single_out import single_out
from onnx_gate.diagnose.trace.record_module import record_module
from onnx_gate.diagnose.trace.trace import Trace
from onnx_gate.diagnose.values import ArrayStore, agree
from onnx_gate.runtimes.torch_eager import Eager, to_tensor
from onnx_gate.verify.subject import Subject
from tests.support.diverging import make, normal

WIDTH, HEADS = 16, 4


class Block(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, w // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (8.0 if self.fault == "scale" else 2.0)
        mask = torch.ones(t, t, dtype=torch.bool).triu(2 if self.fault == "mask" else 1)
        scores = scores.masked_fill(mask, -1e4)
        a = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))
        x = a if self.fault == "residual" else x + a
        h = self.down(F.gelu(self.up(self.norm2(x))))
        if self.fault == "last residual":
            return h
        return h - x if self.fault == "swapped" else x - h


class Net(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block(), Block(fault)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Take away every name that is not the model's interface, and what the exporter noted."""
    graph, names = model.graph, {v.name: v.name for v in (*model.graph.input, *model.graph.output)}
    names[""] = ""

    def anew(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}")

    for tensor in graph.initializer:
        tensor.name = anew(tensor.name)
    for node in graph.node:
        node.input[:] = [anew(name) for name in node.input]
        node.output[:] = [anew(name) for name in node.output]
        node.name = ""
        del node.metadata_props[:]
    del graph.value_info[:]
    return model


def committed(folder: Path, written: nn.Module, module: nn.Module) -> Subject:
    """Return the check of ``module`` against a file that was made from ``written``."""
    path = folder / "old.onnx"
    written.load_state_dict(module.state_dict())
    program = torch.onnx.export(
        written.eval(),
        (to_tensor(normal(2, 5, WIDTH)),),
        dynamo=True,
        verbose=False,
        input_names=["x"],
        dynamic_shapes=({0: "b", 1: "t"},),
    )
    program.save(str(path))
    onnx.save(renamed(onnx.load(str(path))), str(path))
    subject = make(folder, module, normal(2, 7, WIDTH), shape=("b", "t", WIDTH), file=path)
    return dataclasses.replace(subject, workspace=Path(__file__).parent)


# What has to be named, and a piece of the line that has to be.
PLACES: dict[str, tuple[str, str]] = {
    "residual": ("Add", "x + a"),
    "last residual": ("Sub", "x - h"),
    "swapped": ("Sub", "x - h"),
    "scale": ("Div", "else 2.0"),
    "mask": ("Trilu", "triu("),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLACES)
def test_the_operator_that_differs_is_named_and_no_neighbour(fault: str, tmp_path: Path) -> None:
    located = localize(committed(tmp_path, Net(fault), Net()))
    op_type, line = PLACES[fault]
    assert located.node is not None, located.note
    assert located.node.op_type == op_type
    assert located.source is not None
    assert line in located.source.code
    lacking = "the graph lacks this operator" in located.note
    assert lacking == ("residual" in fault)


class Scores(nn.Module):
    """Scores that are scaled and have a soft cap, before a bias is added to them."""

    def __init__(self, *, capped: bool) -> None:
        super().__init__()
        self.capped = capped

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ x.transpose(-1, -2)) * 0.3
        if self.capped:
            scores = torch.tanh(scores / 1.7) * 1.7
        return (scores + x.transpose(-1, -2).mean(1, keepdim=True)).softmax(-1)


def by_hand(folder: Path, module: nn.Module, *middle: onnx.NodeProto) -> Subject:
    """Return the check of ``module`` against a file that makes its softmax of ``s`` in its own way."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["p"]),
        helper.make_node("ReduceMean", ["t", "one"], ["m"], keepdims=1),
        *middle,
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 7, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 7, 7])
    stored = [
        helper.make_tensor("c", TensorProto.FLOAT, [], [0.3]),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
    ]
    graph = helper.make_graph(nodes, "graph", [x], [y], stored)
    path = folder / "old.onnx"
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))
    subject = make(folder, module, normal(2, 7, WIDTH) / 2, shape=("b", 7, WIDTH), file=path)
    return dataclasses.replace(subject, workspace=Path(__file__).parent)


def test_all_operators_that_the_graph_lacks_are_named(tmp_path: Path) -> None:
    mul = helper.make_node("Mul", ["p", "c"], ["q"])
    add = helper.make_node("Add", ["q", "m"], ["s"])
    located = localize(by_hand(tmp_path, Scores(capped=True), mul, add))
    assert located.node is not None, located.note
    assert located.beside is not None, located.note
    assert (located.node.op_type, located.beside.op_type) == ("Div", "Add")
    assert "the graph lacks Div, Tanh and Mul, one behind the other" in located.note
    assert located.source is not None
    assert "tanh(scores / 1.7)" in located.source.code


def test_two_operators_in_the_other_order_are_told(tmp_path: Path) -> None:
    add = helper.make_node("Add", ["p", "m"], ["q"])
    mul = helper.make_node("Mul", ["q", "c"], ["s"])
    subject = by_hand(tmp_path, Scores(capped=False), add, mul)
    located = localize(subject)
    assert located.node is not None, located.note
    assert located.node.op_type == "Add"
    told = single_out(subject, located, 60).told
    assert told == "Add stands before Mul in the file, and with Mul first it agrees with PyTorch"


class Dense(nn.Module):
    def __init__(self, times: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.times = nn.Linear(WIDTH, WIDTH), times

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if self.times == 1.0 else y * self.times


def test_what_does_nothing_to_zeros_has_no_place_in_an_order(tmp_path: Path) -> None:
    """A product of zeros is zeros, so that a layer behind it makes its bias, as PyTorch does."""

    def exporter(module: nn.Module, example: Tensor, path: Path) -> None:
        torch.onnx.export(Dense(1.004).eval(), (example,), str(path), dynamo=False)

    subject = make(tmp_path, Dense(), np.zeros((3, WIDTH), np.float32), exporter=exporter)
    told = single_out(subject, localize(subject), 60).told
    assert "of Mul is 1.004, and with 1 it agrees" in told


def cast_at_the_end(model: onnx.ModelProto) -> None:
    """Hand the output over in half precision, as some scripts do after the export."""
    output = model.graph.output[0]
    for node in model.graph.node:
        node.output[:] = ["full" if name == output.name else name for name in node.output]
    model.graph.node.append(
        helper.make_node("Cast", ["full"], [output.name], to=TensorProto.FLOAT16)
    )
    output.type.tensor_type.elem_type = TensorProto.FLOAT16


def halved(folder: Path, *, as_file: bool) -> Subject:
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()

    def exporter(module: nn.Module, example: Tensor, path: Path) -> None:
        torch.onnx.export(module, (example,), dynamo=True, verbose=False).save(str(path))
        model = onnx.load(str(path))
        cast_at_the_end(model)
        onnx.save(model, str(path))

    if as_file:
        path = folder / "old.onnx"
        exporter(module, to_tensor(normal(3, 8)), path)
        return make(folder, module, normal(3, 8), file=path)
    return make(folder, module, normal(3, 8), exporter=exporter)


@pytest.mark.parametrize("kind", ["exported", "committed"])
def test_another_dtype_is_no_rounding(kind: str, tmp_path: Path) -> None:
    subject = halved(tmp_path, as_file=kind == "committed")
    found = find_blame(subject)
    assert found.blame == ("stale artifact" if kind == "committed" else "exporter")
    located = localize(subject)
    assert located.node is not None
    assert located.node.op_type == "Cast"
    assert "float16 where PyTorch has float32" in located.note


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        def curved(a: Tensor) -> Tensor:
            wave = torch.sin(a)
            return wave * 2

        y = torch.cond(x.sum() < 1e9, curved, torch.neg, (self.before(x),))
        return self.after(y)


def test_the_operators_in_a_branch_of_cond_are_recorded(tmp_path: Path) -> None:
    trace, eager, x = Trace(), Eager(Branching().eval(), ("x",)), normal(4, WIDTH)
    eager.run({"x": x})
    (output,) = record_module(eager, {"x": x}, trace, ArrayStore(tmp_path, 2**20), tmp_path)
    assert output is not None
    made = trace[output]
    for operator in ("addmm", "mul", "sin", "addmm"):
        assert made.operator == f"aten.{operator}.{'Tensor' if operator == 'mul' else 'default'}"
        made = next(
            t for t in map(trace.__getitem__, made.parents) if t.operator != "aten.t.default"
        )


def test_masks_are_one_and_hide_no_score() -> None:
    """Minus infinity and the least number mask alike, and neither is the scale of what it is added to."""
    scores = np.linspace(-2, 2, 8, dtype=np.float32)
    least, wrong = np.finfo(np.float32).min, scores + np.float32(0.5)
    expected = np.concatenate([scores, [-np.inf]]).astype(np.float32)
    assert agree(np.concatenate([scores, [least]]).astype(np.float32), expected)
    assert not agree(np.concatenate([wrong, [least]]).astype(np.float32), expected)
    assert not agree(np.concatenate([scores, [0.0]]).astype(np.float32), expected)
    assert not agree(np.concatenate([scores, [-1e9]]).astype(np.float32), expected)


class Quantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "shift", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
        )

    def forward(self, x: Tensor) -> Tensor:
        quantised = torch.quantize_per_tensor(x, 0.01, 128, torch.quint8)
        return torch.relu(quantised).dequantize() + self.shift.dequantize()


def test_quantised_values_are_recorded_as_what_they_stand_for(tmp_path: Path) -> None:
    trace, store, module = Trace(), ArrayStore(tmp_path, 2**20), Quantised()
    x = normal(2, 4)
    record_module(Eager(module, ("x",)), {"x": x}, trace, store, tmp_path)
    [made] = [t for t in trace if t.operator.startswith("aten.quantize_per_tensor")]
    np.testing.assert_allclose(made.array, np.clip(x, -1.28, 1.27), atol=0.0051)
    assert trace.values[-1].depends_on_input
    subject = make(tmp_path, nn.Tanh(), x)
    for traced in [t for t in trace if t.operator.startswith("aten.dequantize")]:
        lower(traced, "torchscript", subject, trace, store)  # NumPy cannot hold what it reads
