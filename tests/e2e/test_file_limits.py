"""Limits that the file alone has: gone to where inputs lead there, compared at their node elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.limits import FileLimit, limits_of_values, sizes_named
from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.checks import ModuleSetting
from onnx_gate.verify.file_limits import limits_besides, or_nothing
from onnx_gate.verify.reach.shown import Limits
from onnx_gate.verify.reach.watcher import Watcher
from tests.support.gate import gate

MODELS = '''
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn


class Rates(nn.Module):
    """Exponentials, all but few of them small."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.exp(self.first(x) / 2))


class Squares(Rates):
    def forward(self, x):
        return self.second(self.first(x)) ** 2


class Means(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 6)

    def forward(self, x):
        return self.layer(x).mean(1)


class Chosen(nn.Module):
    """Three conditions that hardly ever hold at once, and a layer of five that is hardly ever chosen."""

    def __init__(self, wrong=False):
        super().__init__()
        torch.manual_seed(2)
        self.route, self.layers, self.wrong = nn.Linear(9, 5), nn.Linear(9, 5), wrong
        with torch.no_grad():
            self.route.bias[4] -= 16.0

    def forward(self, x):
        scores, made = self.route(x), self.layers(x)
        a, b, c, *_ = made.unbind(-1)
        held = (a > 2.0) & (a < 2.3) & ~((b > -1.7) | (b < -2.0)) & (c > 1.5) & (c < 1.9)
        made = torch.where(held[:, None], -made if self.wrong != "rule" else made * 1.5, made)
        last = made[:, 4:] * (2 if self.wrong == "expert" else 1)
        made = torch.cat([made[:, :4], last], 1)
        return (nn.functional.one_hot(scores.argmax(-1), 5) * made).sum(-1)


class Sharp(nn.Module):
    """Probabilities, or their logarithms, of scores that are far apart for large inputs alone."""

    def __init__(self, logarithms=False, plainly=False):
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.logarithms, self.plainly = nn.Linear(8, 5), logarithms, plainly

    def forward(self, x):
        scores = self.layer(x) * 10
        if self.logarithms:
            return torch.log(scores.softmax(-1)) if self.plainly else scores.log_softmax(-1)
        made = torch.exp(scores)
        return made / made.sum(-1, keepdim=True) if self.plainly else scores.softmax(-1)


class Ties(nn.Module):
    """How many elements are as the first one is, counted in a byte."""

    def __init__(self, narrow=False):
        super().__init__()
        self.narrow = narrow

    def forward(self, x):
        ties = (x == x[:, :1]).sum((1, 2))
        return ties.to(torch.int8).to(torch.int64) if self.narrow else ties


def right(module, example, path):
    shapes = tuple({axis: torch.export.Dim.AUTO for axis in range(v.ndim - 1)} for v in example.values())
    torch.onnx.export(
        module, tuple(example.values()), str(path), dynamo=True, dynamic_shapes=shapes, verbose=False
    )


def other(wrong):
    def export(module, example, path):
        right(Chosen(wrong).eval(), example, path)

    return export


def plainly(module, example, path):
    right(Sharp(module.logarithms, plainly=True).eval(), example, path)


def narrow(module, example, path):
    right(Ties(narrow=True), example, path)


other_rule, other_expert = other("rule"), other("expert")


def clips(operator, at, end=2):
    def export(module, example, path):
        right(module, example, path)
        model = onnx.load(str(path))
        place = max(n for n, node in enumerate(model.graph.node) if node.op_type == operator)
        made = model.graph.node[place].output[0]
        model.graph.node[place].output[0] = "before"
        model.graph.initializer.append(numpy_helper.from_array(np.float32(at), "limit"))
        ends = ["before", "", ""]
        ends[end] = "limit"
        model.graph.node.insert(place + 1, helper.make_node("Clip", ends, [made]))
        onnx.save(model, str(path))

    return export


rates, far, squares = clips("Exp", 400.0), clips("Exp", 1e25), clips("Pow", 30.0)
ends = clips("Exp", 0.0, end=1)


def window(module, example, path):
    right(module, example, path)
    model = onnx.load(str(path))
    for name, value in (("start", [0]), ("end", [300]), ("axis", [1])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    for node in model.graph.node:
        node.input[:] = ["cut" if name == "x" else name for name in node.input]
    model.graph.node.insert(0, helper.make_node("Slice", ["x", "start", "end", "axis"], ["cut"]))
    onnx.save(model, str(path))
'''
ENTRIES = {
    "rates": ("Rates", "rates", "float32[batch, 8]"),
    "rates-twin": ("Rates", "right", "float32[batch, 8]"),
    "far": ("Rates", "far", "float32[batch, 8]"),
    "ends": ("Rates", "ends", "float32[batch, 8]"),
    "squares": ("Squares", "squares", "float32[batch, 8]"),
    "means": ("Means", "window", "float32[batch, steps, 4]"),
    "means-twin": ("Means", "right", "float32[batch, steps, 4]"),
    "ties": ("Ties", "narrow", "float32[batch, steps, 1]"),
    "ties-twin": ("Ties", "right", "float32[batch, steps, 1]"),
    "softmax": ("Sharp", "plainly", "float32[batch, 8]"),
    "softmax-twin": ("Sharp", "right", "float32[batch, 8]"),
    "logarithms": ("Sharp", "plainly", "float32[batch, 8]"),
    "logarithms-twin": ("Sharp", "right", "float32[batch, 8]"),
    "rule": ("Chosen", "other_rule", "float32[batch, 9]"),
    "expert": ("Chosen", "other_expert", "float32[batch, 9]"),
    "chosen-twin": ("Chosen", "right", "float32[batch, 9]"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("limits")
    (folder / "models.py").write_text(MODELS)
    entries = {
        name: {
            "model": f"models.py:{model}",
            "export": {"exporter": f"models.py:{export}"},
            "inputs": {"x": x},
            "kwargs": {"logarithms": True} if name.startswith("logarithms") else {},
        }
        for name, (model, export, x) in ENTRIES.items()
    }
    (folder / "onnx-gate.yml").write_text(yaml.safe_dump({"version": 1, "models": entries}))
    finished = gate("run", "--remedies", "0", cwd=folder)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    report = read_report(folder / "onnx-gate-report" / "report.json")
    return {model.name: model for model in report.models}


@pytest.mark.parametrize(
    "name", ["rates", "squares", "means", "rule", "expert", "softmax", "logarithms", "ties"]
)
def test_inputs_are_looked_for_where_the_file_decides(
    models: dict[str, ModelResult], name: str
) -> None:
    assert models[name].verdict == "diverged"


@pytest.mark.parametrize(
    "name",
    [
        "rates-twin",
        "means-twin",
        "chosen-twin",
        "softmax-twin",
        "logarithms-twin",
        "ties-twin",
        "ends",
    ],
)
def test_what_decides_as_the_module_does_agrees(models: dict[str, ModelResult], name: str) -> None:
    assert models[name].verdict == "pass"
    decisions = models[name].decisions
    assert decisions is None or not decisions.never
    assert not any(finding.code == "OG419" for finding in models[name].findings)


def test_a_limit_that_no_input_reaches_is_compared_at_its_node(
    models: dict[str, ModelResult],
) -> None:
    assert models["far"].verdict == "pass"
    (finding,) = (each for each in models["far"].findings if each.code == "OG419")
    assert "Clip above 1e+25" in finding.message


def test_numbers_of_a_graph() -> None:
    """Ends of a slice along an axis of one length are no sizes; of lists of limits each number counts.

    Numbers lie among the initializers, or among the nodes as those that TorchScript's exporter writes.
    """
    stored = {
        "half a": np.float32(0.5),
        "row": np.array([1, 4, 1, 1], np.float32),
        "weights": np.ones(65, np.float32),
        "token": np.array(250001),
        "start": np.array([0]),
        "half": np.array([8]),
        "first": np.array([1]),
        "last": np.array([2]),
    }
    among = {"limit": np.float32(2.5), "end": np.array([700])}
    nodes = [
        *(
            helper.make_node(
                "Constant", [], [name], value=numpy_helper.from_array(np.asarray(value))
            )
            for name, value in among.items()
        ),
        helper.make_node("Max", ["x", "limit"], ["a"]),
        helper.make_node("Sub", ["a", "limit"], ["less"]),
        helper.make_node("Sub", ["half a", "less"], ["b"]),
        helper.make_node("Min", ["a", "row"], ["rows"]),
        helper.make_node("Max", ["a", "weights"], ["most"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["wide", "first"], ["column"]),
        helper.make_node("Equal", ["column", "token"], ["padding"]),
        helper.make_node("Slice", ["c", "start", "end", "first"], ["d"]),
        helper.make_node("Slice", ["c", "start", "half", "last"], ["y"]),
        helper.make_node("Max", ["limit", "limit"], ["fixed"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Cast", ["sizes"], ["small"], to=TensorProto.INT8),
    ]
    shape: list[str | int | None] = ["batch", "steps", 16]
    known = [helper.make_tensor_value_info("c", TensorProto.FLOAT, shape)]
    known.append(helper.make_tensor_value_info("sizes", TensorProto.INT64, [3]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    ends.insert(1, helper.make_tensor_value_info("ids", TensorProto.INT32, ["batch"]))
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:], tensors, value_info=known)
    read = read_graph(onnx.helper.make_model(graph), Path("model.onnx"))
    assert [*limits_of_values(read)] == [
        FileLimit("Max", (("x", 2.5),)),
        FileLimit("Min", (("a", 1.0),)),
        FileLimit("Min", (("a", 4.0),)),
        FileLimit("Relu", (("b", 0.0), ("less", 0.5), ("a", 3.0))),
        FileLimit("Equal", (("column", 250001), ("wide", 250001), ("ids", 250001))),
    ]
    assert sizes_named(read) == {0, 700, 128, 250001}


def test_windows_name_sizes_along_axes_of_any_length() -> None:
    """What is put before a signal, and how far a kernel reaches; not along an axis of one length."""
    nodes = [
        helper.make_node("Pad", ["x", "before"], ["padded"]),
        helper.make_node("Conv", ["padded", "taps"], ["y"], dilations=[2, 1]),
    ]
    shape: list[str | int | None] = ["batch", 1, "steps", 40]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy")
    known = [helper.make_tensor_value_info("padded", TensorProto.FLOAT, shape)]
    tensors = [
        numpy_helper.from_array(np.array([0, 0, 278, 7, 0, 0, 0, 5]), "before"),
        numpy_helper.from_array(np.ones((1, 1, 140, 9), np.float32), "taps"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors, value_info=known)
    read = read_graph(helper.make_model(graph), Path("model.onnx"))
    assert sizes_named(read) == {0, 278, 279}


def test_a_file_that_cannot_be_read_for_its_limits_costs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eager = Eager(nn.Linear(2, 2).eval(), ("input",))
    setting = ModuleSetting(
        spec=ModelSpec("net", "models.py:net", {}),
        eager=eager,
        path=tmp_path / "gone.onnx",
        graph_inputs={},
        graph_outputs=(),
        example={},
        workspace=tmp_path,
        patterns=(),
        threads=1,
        reduced=None,
        written=(),
    )
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 2]) for n in "xy")
    clipped = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "clipped", [x], [y])
    graph = read_graph(helper.make_model(clipped, ir_version=10), setting.path)
    nothing: Limits = {}
    found = or_nothing(partial(limits_besides, setting, graph), nothing)
    assert found(Watcher(eager), {}) == {}
    assert "gone.onnx" in capsys.readouterr().err
