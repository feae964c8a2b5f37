"""The cause: twenty faults of ten kinds, each told for what it is, or nothing is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from benchmarks.accuracy.diagnose_cases import CASES
from onnx_gate.diagnose.blame.weights import folded, told_of_weight
from onnx_gate.diagnose.hints.hints import possible
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.diagnose.single_out import single_out
from onnx_gate.diagnose.trace.record_export import silence_exporters
from onnx_gate.graph.session import PlainSession
from onnx_gate.report.model.diagnosis import Diagnosis, GraphNode
from tests.support.diverging import Of, make, normal

NAMED = {case.name: case for case in CASES}

TOLD = {
    # another variant of an operator
    "dynamo/gelu-tanh": "Gelu has approximate=tanh, and with none it agrees",
    "dynamo/count-include-pad": "AveragePool has count_include_pad=1, and with 0 it agrees",
    "dynamo/cumsum-exclusive": "CumSum has exclusive=1, and with 0 it agrees",
    "dynamo/gru-reset": "GRU has linear_before_reset=0, and with 1 it agrees",
    # a number beside it
    "torchscript/epsilon": "LayerNormalization has epsilon=0.001, and with 1e-05 it agrees",
    "dynamo/alpha": "LeakyRelu has alpha=0.11, and with 0.1 it agrees",
    # another axis
    "converted/gelu-tanh": "Gelu has approximate=tanh",
    "names/softmax-axis": "Softmax has axis=1, and with 3 it agrees",
    "dynamo/heads-permuted": "Transpose has perm=[0, 3, 1, 2], and with [0, 2, 1, 3] it agrees",
    # where a window lies
    "dynamo/pads": "Conv has pads=[1, 2, 3, 2], and with [2, 2, 2, 2] it agrees",
    # where pixels lie
    "dynamo/resize-mode": "Resize has coordinate_transformation_mode=asymmetric",
    # two inputs for each other
    "dynamo/concat-order": "of Concat are exchanged",
    # a constant, and one that scales
    "dynamo/scale-missing": "of Div is 1, and with 2 it agrees",
    "dynamo/rms-constant": "of Add is 0.001, and with 0.01 it agrees",
    # what became of a weight
    "dynamo/weight-half": "the weight up.weight is rounded to float16 in the file",
    "dynamo/weight-transposed": "the weight square.weight is transposed in the file",
    "names/stale-weights": "the weight down.weight is 1.01 times the module's in the file",
    "torchscript/query-stale": "the weight layers.0.attn.query.weight is in another order in the file: "
    "the same columns in reverse order",
    # several things at once, or something that is missing: nothing is known
    "dynamo/dilation": "",
    "dynamo/relu-dropped": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLD)
def test_what_is_told_is_the_cause(name: str, tmp_path: Path) -> None:
    with silence_exporters():
        subject = NAMED[name].make(tmp_path)
    cause = single_out(subject, localize(subject), 60).told
    assert bool(cause) == bool(TOLD[name])
    assert TOLD[name] in cause


def limited(low: float, high: float) -> Callable[[nn.Module, Tensor, Path], None]:
    """Export a clamp, and write another limit into the file."""

    def written(module: nn.Module, x: Tensor, path: Path) -> None:
        torch.onnx.export(module, (x,), path, dynamo=False, verbose=False)
        proto = onnx.load(path)
        [clip] = [node for node in proto.graph.node if node.op_type == "Clip"]
        proto.graph.initializer.extend(
            numpy_helper.from_array(np.array(each, np.float32), f"limit_{at}")
            for at, each in enumerate((low, high))
        )
        clip.input[:] = [clip.input[0], "limit_0", "limit_1"]
        onnx.save(proto, path)

    return written


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (2, 8, "of Clip is 2, and with 1 or less it agrees with PyTorch"),
        (0.1, 2, "of Clip is 2, and with 3 or more it agrees with PyTorch"),
    ],
)
def test_a_limit_that_clips_nothing_here_is_told_as_one_of_many(
    tmp_path: Path, low: float, high: float, words: str
) -> None:
    """What is clipped nowhere says how far off a limit is at least, and not which it has to be."""
    x = np.array([[1, 1.5, 2.5, 3]], np.float32)
    clamp = Of(lambda x: x.abs().clamp(1e-6, 10) * 3)
    subject = make(tmp_path, clamp, x, exporter=limited(low, high))
    assert words in single_out(subject, localize(subject), 60).told


def test_a_limit_that_clips_here_is_told_as_it_is(tmp_path: Path) -> None:
    x = np.array([[0.5, 1.5, 2.5, 4]], np.float32)
    clamp = Of(lambda x: x.abs().clamp(1, 10) * 3)
    subject = make(tmp_path, clamp, x, exporter=limited(2, 10))
    told = single_out(subject, localize(subject), 60).told
    assert "of Clip is 2, and with 1 it agrees with PyTorch" in told


class TopK(nn.Module):
    """The largest of each row, and where they are, in whatever order."""

    def __init__(self, *, sort: bool, places: bool) -> None:
        super().__init__()
        self.sort, self.places = sort, places

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.topk(x, 5, sorted=self.sort)[self.places]


@pytest.mark.parametrize("places", [False, True])
def test_an_order_that_nobody_promised_is_told_with_what_makes_both_sides_keep_it(
    tmp_path: Path, places: bool
) -> None:
    x = normal(3, 40)
    subject = make(tmp_path, TopK(sort=False, places=places), x)
    cause = single_out(subject, localize(subject), 60)
    assert "the same elements in another order" in cause.told
    assert "sorted=True" in cause.remedy
    module = TopK(sort=True, places=places)
    sorted_too = make(tmp_path, module, x)
    answer = PlainSession(sorted_too.exported.proto).run({"x": x})[0]
    np.testing.assert_array_equal(answer, module(torch.from_numpy(x)).numpy())
    # Other elements are no other order.
    other = make(tmp_path, TopK(sort=False, places=places), x)
    located = localize(other)
    expected = {name: -array - 1 for name, array in located.expected.items()}
    assert not single_out(other, replace(located, expected=expected), 60).told


class Counted(nn.Module):
    """Numbers that are added up where they belong, several of them at one place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.tensor([0, 2, 2, 1, 2])
        return torch.zeros(3, 4).index_put((places,), torch.tanh(x), accumulate=True) * 2


def test_duplicates_that_a_scatter_loses_are_told(tmp_path: Path) -> None:
    def exporter(_: nn.Module, __: torch.Tensor, path: Path) -> None:
        places = helper.make_tensor("places", TensorProto.INT64, [5, 1], [0, 2, 2, 1, 2])
        nodes = [
            helper.make_node("Tanh", ["x"], ["t"]),
            helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
            helper.make_node("ScatterND", ["zeros", "places", "t"], ["s"]),
            helper.make_node("Add", ["s", "s"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
            [places, helper.make_tensor("shape", TensorProto.INT64, [2], [3, 4])],
        )
        opset = [helper.make_opsetid("", 18)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))

    subject = make(tmp_path, Counted(), normal(5, 4), exporter=exporter)
    cause = single_out(subject, localize(subject), 60).told
    assert cause == "ScatterND has reduction=none, and with add it agrees with PyTorch"


class Averaged(nn.Module):
    """An average that is divided by another number than that of its elements."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(self.conv(x), 2, 2, divisor_override=3)


def test_an_average_with_another_divisor_is_told_and_not_the_layer_before(tmp_path: Path) -> None:
    module = Averaged()
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "weight", "bias"], ["a"]),
            helper.make_node("AveragePool", ["a"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 10, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4, 4, 4])],
        [
            numpy_helper.from_array(tensor.detach().numpy(), name)
            for name, tensor in module.conv.named_parameters()
        ],
    )
    path, opset = tmp_path / "committed.onnx", [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))
    # Of 16 samples and more PyTorch has another convolution, which rounds more.
    x = normal(17, 3, 10, 10)
    subject = make(tmp_path, module, x, shape=("b", 3, 10, 10), file=path)
    located = localize(subject)
    assert located.node is not None, located.note
    assert located.node.op_type == "AveragePool"
    told = "AveragePool makes 0.75 times what PyTorch makes of the same values"
    assert single_out(subject, located, 60).told == told


def test_a_norm_that_was_folded_with_another_eps_is_told() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    norm = module[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_var is not None
    torch.manual_seed(0)
    norm.running_var.uniform_(0.01, 2)
    norm.eps = 1e-3
    ((name, stored, _),) = folded(module)
    norm.eps = 1e-5
    ((_, right, _),) = folded(module)
    assert name == "0.weight"
    told = "the norm 1 is folded with eps=0.001 in the file, and has 1e-05"
    assert told_of_weight(stored, right, name, module) == told
    other = (stored * np.linspace(0.9, 1.1, 27).reshape(3, 3, 3)).astype(np.float32)
    assert "eps" not in told_of_weight(other, right, name, module)


def test_a_norm_that_was_folded_with_other_statistics_is_no_training() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    ((name, right, _),) = folded(module)
    assert isinstance(module[1], nn.BatchNorm2d)
    assert module[1].running_var is not None
    torch.manual_seed(0)
    module[1].running_var.uniform_(0.01, 2)
    ((_, stored, _),) = folded(module)
    told = "the norm 1, which is folded into 0.weight, is another in the file"
    assert told_of_weight(stored, right, name, module) == told
    other = (stored * np.linspace(0.9, 1.1, 27).reshape(3, 3, 3)).astype(np.float32)
    assert "other training" in told_of_weight(other, right, name, module)


def test_what_is_filled_with_one_number_is_no_training() -> None:
    stored, right = np.full((6, 3), 0.5, np.float32), np.full((6, 3), -1e9, np.float32)
    told = "val_3 is 0.5 everywhere in the file, and -1e+09 in the module"
    assert told_of_weight(stored, right, "val_3", nn.Linear(3, 6)) == told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda a: a[::-1], "the same rows in reverse order"),
        (lambda a: np.roll(a, -1, 0), "each row is the next one"),
        (lambda a: np.roll(a, 3, 0), "each row is the one 3 before"),
        (lambda a: np.roll(a, 1, 1), "each column is the one before"),
        (lambda a: a[[0, 1, 6, 3, 4, 5, 2, 7]], "rows 2, 6 of 8 in each other's places"),
        (lambda a: a[[3, 5, 6, 0, 7, 4, 1, 2]], "the same rows in another order"),
        (lambda a: a.T.reshape(8, 6), "the same numbers in another order"),
    ],
)
def test_the_same_numbers_in_other_places_are_no_training(
    change: Callable[[np.ndarray], np.ndarray], told: str
) -> None:
    right = normal(8, 6)
    stored = np.array(change(right))
    said = f"the weight up.weight is in another order in the file: {told}"
    assert told_of_weight(stored, right, "up.weight", nn.Linear(6, 8)) == said
    # One number beside them, and they are other ones.
    stored[2, 3] += 0.5
    assert "has other values" in told_of_weight(stored, right, "up.weight", nn.Linear(6, 8))


def test_a_wrong_weight_is_told_with_the_names_that_it_is_tied_to() -> None:
    module = nn.ModuleDict({"emb": nn.Embedding(4, 3), "head": nn.Linear(3, 4, bias=False)})
    right = module["emb"].weight.detach().numpy().copy()
    told = told_of_weight(normal(4, 3, seed=5), right, "emb.weight", module)
    assert "tied" not in told
    module["head"].weight = module["emb"].weight
    told = told_of_weight(normal(4, 3, seed=5), right, "emb.weight", module)
    assert "the weight emb.weight (tied: head.weight) has other values" in told


class Masked(nn.Module):
    """Scores with a number added where nobody is to look."""

    def __init__(self, fill: float) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.matmul(x, x.transpose(1, 2)) / 2
        return (scores + torch.full((5, 5), self.fill).triu(1)).softmax(-1)


class Added(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        places = torch.tensor([0, 1, 0, 2, 1]).expand(x.shape[0], 5)
        return torch.zeros(x.shape[0], 3).scatter_add(1, places, x)


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong"), [(-4.0, -2.0), (float("-inf"), -5.0)])
def test_a_mask_of_another_size_is_told(right: float, wrong: float, tmp_path: Path) -> None:
    def other(_: nn.Module, x: Tensor, path: Path) -> None:
        torch.onnx.export(Masked(wrong), (x,), path, dynamo=True, verbose=False, input_names=["x"])

    subject = make(tmp_path, Masked(right), normal(2, 5, 4), exporter=other)
    told = single_out(subject, localize(subject), 60).told
    meant = "-∞" if right == float("-inf") else f"{right:g}"
    assert f"of Add is {wrong:g} in places, and with {meant} there it agrees with PyTorch" in told


@pytest.mark.slow
def test_what_an_operator_lacks_at_an_old_opset_is_told(tmp_path: Path) -> None:
    """The older exporter writes no addition there, and says nothing."""

    def old(module: nn.Module, x: Tensor, path: Path) -> None:
        named = ["x"]
        torch.onnx.export(module, (x,), path, dynamo=False, opset_version=11, input_names=named)

    subject = make(tmp_path, Added(), normal(3, 5), exporter=old)
    cause = single_out(subject, localize(subject), 60)
    assert cause.told == (
        "ScatterElements has no reduction at opset 11, and with reduction=add, of opset 18, it "
        "agrees with PyTorch"
    )
    assert cause.remedy == "export at opset 18 or later"
    # It was converted from nowhere: that exporter writes each opset by itself.
    node = next(n for n in subject.exported.proto.graph.node if n.op_type == "ScatterElements")
    found = GraphNode(name=node.name, op_type=node.op_type, output=node.output[0])
    diagnosis = Diagnosis.undecided(subject.check, "").model_copy(update={"node": found})
    said = possible(diagnosis, subject.exported.proto, subject.check)
    assert [each.code for each in said] == ["OG713"]


def test_a_number_that_is_a_size_elsewhere_is_told_for_one(tmp_path: Path) -> None:
    """It agrees with the number of this case alone."""

    def baked(_: nn.Module, x: Tensor, path: Path) -> None:
        wrong = Of(lambda x: x.sum(1) / 5).eval()
        shapes = ({1: torch.export.Dim.DYNAMIC},)
        torch.onnx.export(wrong, (x,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)

    module = Of(lambda x: x.sum(1) / x.shape[1])
    subject = make(tmp_path, module, normal(3, 64), shape=(3, "seq"), exporter=baked)
    check = subject.check.model_copy(update={"sizes": {"seq": 64}})
    subject = replace(subject, check=check)
    told = single_out(subject, localize(subject), 60).told
    assert "PyTorch has the size of seq there, 64 in this case" in told


class Twice(nn.Module):
    """Two steps with a number each, of which an exporter may have another."""

    def __init__(self, first: float, then: float) -> None:
        super().__init__()
        self.first, self.then = first, then

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.first).cumsum(-1) * self.then


@pytest.mark.slow
@pytest.mark.parametrize("then", [3.0, 4.0])
def test_a_node_that_is_put_right_is_not_said_to_put_the_output_right(
    then: float, tmp_path: Path
) -> None:
    def other(_: nn.Module, x: Tensor, path: Path) -> None:
        module = Twice(0.5, then)
        torch.onnx.export(module, (x,), path, dynamo=True, verbose=False, input_names=["x"])

    subject = make(tmp_path, Twice(0.25, 3.0), normal(3, 5), exporter=other)
    told = single_out(subject, localize(subject), 60).told
    assert "of Mul is 0.5, and with 0.25" in told
    assert ("it agrees with PyTorch" in told) == (then == 3.0)
    assert ("that node agrees with PyTorch; the output" in told) == (then == 4.0)
