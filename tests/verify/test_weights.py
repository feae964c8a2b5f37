"""Each weight of a file is the module's, or a function of the module's, or is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import nn

from onnx_gate.findings.finding import Finding
from onnx_gate.graph.module_path import module_of_props
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inspect.altered import altered_by
from onnx_gate.verify.inspect.exact import ExactWeights
from onnx_gate.verify.inspect.instead import Instead
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.made import MadeOfNoInput
from onnx_gate.verify.inspect.weights import account, identify
from tests.support import quantised

pytestmark = pytest.mark.slow

ARGUMENTS = (torch.zeros(2, 3, 6, 6), torch.zeros(2, 7, dtype=torch.int64))


class Mixed(nn.Module):
    """Folded norms, gates in another order, tied and turned weights, a branch that is not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.up, self.norm_up = nn.ConvTranspose2d(8, 8, 2, bias=False), nn.BatchNorm2d(8)
        self.two, self.norm_two = nn.ConvTranspose2d(8, 8, 3, groups=2), nn.BatchNorm2d(8)
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.narrow = nn.MultiheadAttention(12, 3, vdim=10, batch_first=True)
        self.table, self.last = nn.Embedding(50, 12), nn.LayerNorm(12)
        self.one, self.other = nn.Linear(12, 10), nn.Linear(12, 10)
        self.head = nn.Linear(12, 50, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("codes", torch.arange(40, dtype=torch.int64).reshape(20, 2))

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        maps = self.norm_up(self.up(self.norm(self.conv(image))))
        maps = self.norm_two(self.two(maps))
        states, _ = self.lstm(maps.flatten(2).transpose(1, 2))
        x = self.last(states[:, :7] + self.table(ids))
        x = x + self.attention(x, x, x)[0] + self.narrow(x, x, x[..., :10])[0]
        first = torch.relu(self.one(x)) * 0
        return self.head(x), first + self.other(x), self.codes[ids % 20]


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    made = Mixed().eval()
    for norm in (made.norm, made.norm_up, made.norm_two):
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean):
            tensor.normal_()
        norm.running_var.uniform_(0.5, 2)
    return made


@pytest.fixture(scope="module", params=["dynamo", "as translated", "torchscript"])
def exported(
    request: pytest.FixtureRequest, module: nn.Module, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("weights") / "model.onnx"
    if request.param == "torchscript":
        torch.onnx.export(module, ARGUMENTS, path, dynamo=False)
    else:
        torch.onnx.export(
            module, ARGUMENTS, path, dynamo=True, optimize=request.param == "dynamo", verbose=False
        )
    return path


def test_every_weight_of_a_right_export_is_accounted_for(exported: Path, module: nn.Module) -> None:
    weights, findings = account(onnx.load(exported), exported.parent, module)
    assert findings == []
    assert weights.unknown == ()
    assert weights.total == weights.same + weights.rearranged + weights.folded > 15


def changed(path: Path, change: Callable[[str, np.ndarray], np.ndarray | None]) -> ModelProto:
    """Return the file with the first weight changed that ``change`` has another value for."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        other = change(tensor.name, numpy_helper.to_array(tensor).copy())
        if other is not None:
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
            return proto
    raise AssertionError("no weight to change")


def copied(*names: str) -> Callable[[str, np.ndarray], np.ndarray | None]:
    def change(name: str, array: np.ndarray) -> np.ndarray | None:
        if name not in names:
            return None
        array[31] = array[32]
        return array

    return change


def off(*names: str, at: int | None = None) -> Callable[[str, np.ndarray], np.ndarray | None]:
    def change(name: str, array: np.ndarray) -> np.ndarray | None:
        if name not in names:
            return None
        array[... if at is None else at] += 1 if array.dtype.kind == "i" else 0.25
        return array

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (off("table.weight", "head.weight", at=49), "row 49 of 50 by up to 0.25"),
        (copied("table.weight", "head.weight"), "row 31 of 50"),
        (off("one.bias"), "one.bias: all of it by up to 0.25"),
        (off("attention.in_proj_bias", at=7), "attention.in_proj_bias: row 7 of 36"),
    ],
)
def test_a_wrong_weight_is_named_at_its_parameter(
    change: Callable[[str, np.ndarray], np.ndarray | None],
    said: str,
    exported: Path,
    module: nn.Module,
) -> None:
    _, [finding] = account(changed(exported, change), exported.parent, module)
    assert finding.severity == "error"
    assert said in finding.message


def test_two_layers_exchanged_are_told_by_who_reads_them(exported: Path, module: nn.Module) -> None:
    proto = onnx.load(exported)
    held = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    one, other = (getattr(module, name).weight.detach().numpy() for name in ("one", "other"))

    def named(array: np.ndarray) -> str:
        return next(
            n for n, v in held.items() if any(np.array_equal(v, each) for each in (array, array.T))
        )

    first, second = named(one), named(other)
    for tensor in proto.graph.initializer:
        if tensor.name in (first, second):
            values = held[second if tensor.name == first else first]
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    _, [finding] = account(proto, exported.parent, module)
    assert "one.weight holds the values of other.weight" in finding.message
    assert set(finding.data["parameters"]) == {"one.weight", "other.weight"}


class Stacked(nn.Module):
    """Experts as a mixture has them: a matrix for each, in one parameter."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.randn(count, 6, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.experts.transpose(1, 2)


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("name", ["val_1", "experts"])
def test_experts_in_each_others_places_are_named(count: int, name: str, tmp_path: Path) -> None:
    module = Stacked(count)
    array = module.experts.detach().numpy()[[1, 0, *range(2, count)]]
    graph = onnx.helper.make_graph([], "g", [], [], [numpy_helper.from_array(array, name)])
    _, [finding] = account(onnx.helper.make_model(graph), tmp_path, module)
    assert f"experts: row 0, 1 of {count} in each other's places" in finding.message
    assert finding.severity == ("error" if name == "experts" else "warning")


class Holder(nn.Module):
    """What is exported of a module where its file is written by hand: a model that has it as a part."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)


def test_layers_exchanged_in_a_part_of_what_was_exported_are_told_and_keep_their_places(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).eval()
    path = tmp_path / "model.onnx"
    torch.onnx.export(Holder(net).eval(), (torch.zeros(2, 4),), path, verbose=False)
    proto = onnx.load(path)
    matrices = [each for each in proto.graph.initializer if len(each.dims) == 2]
    one, other = (numpy_helper.to_array(each) for each in matrices)
    for tensor, values in zip(matrices, (other, one), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    found = identify(proto, tmp_path, net, KnownWeights(net))
    (finding,) = found.findings
    assert "0.weight holds the values of 2.weight" in finding.message
    places = [found.parameters[each.name] for each in matrices]
    held = [found.parameters[each] for each in ("net.0.bias", "net.2.bias")]
    assert (sorted(places), held) == (["0.weight", "2.weight"], ["0.bias", "2.bias"])
    readers = {n.input[1]: module_of_props(n) for n in proto.graph.node if len(n.input) > 1}
    assert [readers[each.name] for each in matrices] == [f"net.{each[0]}" for each in places]


def test_a_channel_that_was_folded_wrongly_is_named(module: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, ARGUMENTS, path, dynamo=True, verbose=False)
    _, [finding] = account(changed(path, off("conv.bias", at=3)), tmp_path, module)
    assert finding.data["parameters"] == ["conv.bias"]
    assert "conv.bias: row 3 of 8" in finding.message


def test_a_wrong_row_of_integers_is_named(module: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, ARGUMENTS, path, dynamo=False)
    _, [finding] = account(changed(path, off("codes", at=19)), tmp_path, module)
    assert "codes: row 19 of 20 by up to 1" in finding.message


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_in_fewer_bits_are_left_to_the_tolerance(
    bits: int, exported: Path, module: nn.Module
) -> None:
    proto = onnx.load(exported)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            step = np.abs(array).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1) + 1e-30
            rounded = (np.rint(array / step) * step).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    weights, findings = account(proto, exported.parent, module)
    assert findings == []
    assert weights.unknown


def test_half_precision_is_a_cast_of_the_modules(exported: Path, module: nn.Module) -> None:
    proto = onnx.load(exported)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
    weights, findings = account(proto, exported.parent, module)
    assert findings == []
    assert len(weights.unknown) <= weights.total / 4


def looked_up(table: np.ndarray) -> onnx.ModelProto:
    """Return a file with the rows of a table that has lost its name."""
    gather = onnx.helper.make_node("Gather", ["val_0", "ids"], ["y"])
    graph = onnx.helper.make_graph(
        [gather],
        "g",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(table, "val_0")],
    )
    return onnx.helper.make_model(graph)


def test_of_equal_buffers_none_is_said_to_be_the_one(tmp_path: Path) -> None:
    held = [nn.Embedding(50, 8) for _ in range(4)]
    for table in held[1:3]:
        table.weight.data.copy_(held[0].weight)
    tables = nn.ModuleList(held)
    for place, told in (
        (1, "0.weight (or one of the 2 equal to it): row 7 of"),
        (3, "3.weight: row 7 of"),
    ):
        array = held[place].weight.detach().numpy().copy()
        array[7] = 0.0
        _, findings = account(looked_up(array), tmp_path, tables)
        assert f": {told}" in findings[0].message


def test_a_row_of_a_table_that_lost_its_name_is_a_warning(tmp_path: Path) -> None:
    module = nn.Embedding(1000, 8)
    table = module.weight.detach().numpy().copy()
    masked = table * (np.random.default_rng(0).random(table.shape) < 0.8)
    table[777] = 0.0
    for array, told in ((table, True), (masked.astype(np.float32), False)):
        weights, findings = account(looked_up(array), tmp_path, module)
        assert [each.name for each in weights.unknown] == ["val_0"]
        assert [(f.code, f.severity) for f in findings] == [("OG417", "warning")] * told
        if told:
            assert "weight: row 777 of 1000" in findings[0].message


def test_a_table_whose_zeros_are_not_stored_is_looked_at(tmp_path: Path) -> None:
    module = nn.Embedding(1000, 8)
    # Some of the zeros of pruned weights are negative, and what stores no zeros has one only.
    module.weight.data.mul_(torch.rand(1000, 8) < 0.2)
    assert (module.weight.data.view(torch.int32) == -(2**31)).any()
    right = module.weight.detach().numpy()
    wrong = right.copy()
    wrong[777, 3] = 3.0
    for array, told in ((right, []), (wrong, ["OG417"])):
        for linear in (True, False):
            places = np.flatnonzero(array) if linear else np.argwhere(array)
            sparse = helper.make_sparse_tensor(
                numpy_helper.from_array(array[array != 0], "weight"),
                numpy_helper.from_array(places.astype(np.int64), "places"),
                array.shape,
            )
            proto = looked_up(array)
            proto.graph.node[0].input[0] = "weight"
            del proto.graph.initializer[:]
            if linear:
                proto.graph.sparse_initializer.append(sparse)
            else:
                node = helper.make_node("Constant", [], ["weight"], sparse_value=sparse)
                proto.graph.node.insert(0, node)
            weights, findings = account(proto, tmp_path, module)
            assert [f.code for f in findings] == told
            assert weights.total == 1


def exact(module: nn.Module, *arguments: torch.Tensor, by_torch: bool = True) -> ExactWeights:
    names = ["image", "ids"][: len(arguments)]
    given = {name: tensor.numpy() for name, tensor in zip(names, arguments, strict=True)}
    return ExactWeights(partial(altered_by, Eager(module, names), given), by_torch)


def to_levels(array: np.ndarray) -> np.ndarray:
    step = np.abs(array).max(axis=tuple(range(1, array.ndim)), keepdims=True) / 127
    return np.rint(array / step) * step


def stale(array: np.ndarray) -> np.ndarray:
    return array * (1 + 1e-3 * np.random.default_rng(0).standard_normal(array.shape))


def flipped(array: np.ndarray) -> np.ndarray:
    array.flat[array.size // 2] *= 1.25
    return array


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float16": lambda array: array.astype(np.float16),
    "bfloat16": lambda array: torch.from_numpy(array).bfloat16().float().numpy(),
    "levels": to_levels,
    "stale": stale,
    "flipped": flipped,
}


def found_in(
    proto: ModelProto, path: Path, module: nn.Module, allowed: ExactWeights
) -> list[Finding]:
    return account(proto, path.parent, module, (), allowed)[1]


@pytest.mark.parametrize("change", CHANGES)
def test_weights_nearly_a_parameter_are_wrong_where_rounding_alone_is_allowed(
    change: str, exported: Path, module: nn.Module
) -> None:
    allowed = exact(module, *ARGUMENTS)
    assert found_in(onnx.load(exported), exported, module, allowed) == []
    proto, tried = onnx.load(exported), 0
    for tensor in proto.graph.initializer:
        right = numpy_helper.to_array(tensor)
        matrix = right.dtype == np.float32 and right.ndim > 1 and right.size > 64
        if not matrix or len(right) == 2:  # the gates of both directions, in ONNX's own order
            continue
        other = CHANGES[change](right.copy()).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
        messages = [
            f.message for f in found_in(proto, exported, module, allowed) if f.severity == "error"
        ]
        assert messages, tensor.name
        assert ("went through" in messages[0]) == ("float16" in change)
        tensor.CopyFrom(numpy_helper.from_array(right, tensor.name))
        tried += 1
    assert tried > 6


class RoundsItsOwn(nn.Module):
    """What training for a quantiser, sixteen bits and a mask make of weights, in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.halved, self.fake, self.sparse = (nn.Linear(16, 16) for _ in range(3))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
        self.plain = nn.Linear(16, 16)
        self.register_buffer("mask", (torch.rand(16, 16) > 0.2).float())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(image, self.halved.weight.half().float(), self.halved.bias)
        fake = torch.fake_quantize_per_tensor_affine(self.fake.weight, 0.004, 0, -128, 127)
        x = nn.functional.linear(x, fake)
        return self.plain(self.normed(nn.functional.linear(x, self.sparse.weight * self.mask)))


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_module_that_rounds_its_own_weights_may_have_them_so_in_the_file(
    dynamo: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module, image, path = RoundsItsOwn().eval(), torch.rand(3, 16), tmp_path / "model.onnx"
    torch.onnx.export(module, (image,), path, dynamo=dynamo, verbose=False)
    allowed = exact(module, image)
    assert found_in(onnx.load(path), path, module, allowed) == []
    assert allowed.vouches("plain.weight")
    assert not any(map(allowed.vouches, ("halved.weight", "fake.weight", "sparse.weight")))
    folded = changed(
        path,
        lambda _, array: (
            None
            if not np.array_equal(array.T, module.plain.weight.detach())
            and not np.array_equal(array, module.plain.weight.detach())
            else array.astype(np.float16).astype(np.float32)
        ),
    )
    [finding] = found_in(folded, path, module, allowed)
    assert "plain.weight went through float16" in finding.message


class Chosen(nn.Module):
    """Rows of a parameter that is no layer of PyTorch's own; ``turned`` makes another of it first."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(1000, 8))
        self.turned = turned

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return (self.rows.flip(0) if self.turned else self.rows)[ids]


@pytest.mark.parametrize("turned", [False, True])
def test_few_wrong_rows_of_what_a_module_uses_as_it_is_are_an_error_in_any_file(
    turned: bool, tmp_path: Path
) -> None:
    module = Chosen(turned)
    table = module.rows.detach().numpy().copy()
    table[777] += 0.5
    allowed = exact(module, torch.arange(4), by_torch=False)
    _, found = account(looked_up(table), tmp_path, module, exact=allowed)
    assert [finding.severity for finding in found] == ["error"] * (not turned)
    assert all("rows: row 777 of 1000" in finding.message for finding in found)


def test_what_another_exporter_made_of_a_nameless_weight_is_a_warning(
    exported: Path, module: nn.Module
) -> None:
    proto, nameless = onnx.load(exported), 0
    for tensor in proto.graph.initializer:
        right = numpy_helper.to_array(tensor)
        if right.shape == (12, 10) and "weight" not in tensor.name:
            nameless += 1
            merged = right + np.float32(1e-3) * np.random.default_rng(0).random(
                (12, 10), np.float32
            )
            tensor.CopyFrom(numpy_helper.from_array(merged, tensor.name))
    found = found_in(proto, exported, module, exact(module, *ARGUMENTS, by_torch=False))
    assert [finding.severity for finding in found] == ["warning"] * bool(nameless)


class Prepares(nn.Module):
    """Slopes, a mask and a normalised weight, which exporters compute once and keep."""

    def __init__(self) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(7, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slopes = 2.0 ** -torch.arange(1, 13)
        mask = torch.eye(7) + 0.5
        return (x * slopes) @ nn.functional.normalize(self.directions).T @ mask


def test_what_forward_computes_of_no_input_is_accounted_for(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, path = Prepares().eval(), torch.randn(3, 12), tmp_path / "model.onnx"
    torch.onnx.export(module, (x,), path, dynamo=True, verbose=False)
    made = MadeOfNoInput(Eager(module, ("x",)), {"x": x.numpy()})
    weights, findings = account(onnx.load(path), tmp_path, module, made=made)
    assert (findings, weights.unknown, weights.made) == ([], (), weights.total)
    assert weights.total >= 2
    stale = changed(path, lambda _, a: a + np.float32(1e-4) if a.size >= 49 else None)
    weights, _ = account(stale, tmp_path, module, made=made)
    assert len(weights.unknown) == 1


def test_what_an_exporter_begins_a_sum_with_is_no_weight(tmp_path: Path) -> None:
    bag, ids = nn.EmbeddingBag(20, 8).eval(), torch.randint(0, 20, (3, 5))
    torch.onnx.export(bag, (ids,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    weights, findings = account(onnx.load(tmp_path / "model.onnx"), tmp_path, bag)
    assert (findings, weights.total, weights.same) == ([], 1, 1)


class Blocked(nn.Module):
    """Rows of a table, but for those that are on a list, with a bias of which parts go different ways."""

    def __init__(self, order: torch.Tensor | None = None, of: int = 9, bias: int = 4) -> None:
        super().__init__()
        self.table, self.bias = nn.Embedding(40, 4), nn.Parameter(torch.randn(8))
        self.register_buffer("blocked", torch.arange(3, 30, 3))
        self.of, self.at = of, bias
        if order is not None:
            self.table.weight.data = self.table.weight[order.argsort()].detach().clone()
            self.order = order

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        blocked = (ids.unsqueeze(-1) == self.blocked.clone()[: self.of]).any(-1, keepdim=True)
        rows = self.table(self.order[ids] if hasattr(self, "order") else ids)
        return torch.where(blocked, self.bias[:4] * 2, rows + self.bias[self.at : self.at + 4])


@pytest.mark.parametrize(
    ("options", "unknown"),
    [
        ({}, []),
        ({"of": 8}, ["blocked"]),
        ({"bias": 3}, ["bias"]),
        ({"order": torch.arange(40).roll(7)}, ["table.weight", None]),
    ],
)
def test_tables_and_lists_of_whole_numbers_and_all_parts_of_a_vector_are_accounted_for(
    tmp_path: Path, options: dict[str, Any], unknown: list[str | None]
) -> None:
    torch.manual_seed(0)
    module, path, ids = Blocked().eval(), tmp_path / "model.onnx", torch.arange(6)
    torch.manual_seed(0)
    torch.onnx.export(Blocked(**options).eval(), (ids,), path, dynamo=True, verbose=False)
    made = MadeOfNoInput(Eager(module, ("ids",)), {"ids": ids.numpy()})
    weights, findings = account(onnx.load(path), tmp_path, module, made=made)
    assert [each.parameter for each in weights.unknown] == unknown
    # That each row is asked for by another number is told by a run of the file alone.
    assert {each.code for each in findings} == ({"OG417"} if "order" in options else set())


class Wide(nn.Module):
    """Layers of sequences, whose weights lie in the file transposed, under names of the exporter's."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.other = nn.Linear(12, 24), nn.Linear(24, 12), nn.Linear(24, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x).relu()
        return self.down(y) + self.other(y)


@pytest.mark.parametrize("place", [np.s_[3, 5], np.s_[:, 5], np.s_[3]])
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_a_part_of_a_transposed_weight_is_wrong_where_its_layer_reads_it(
    tmp_path: Path, place: Any, dynamo: bool
) -> None:
    torch.manual_seed(0)
    module, x, path = Wide().eval(), torch.randn(2, 3, 12), tmp_path / "model.onnx"
    torch.onnx.export(module, (x,), path, dynamo=dynamo, verbose=False)
    made = MadeOfNoInput(Eager(module, ("x",)), {"x": x.numpy()})
    weights, findings = account(onnx.load(path), tmp_path, module, made=made)
    assert (findings, weights.unknown) == ([], ())

    def off(_: str, array: np.ndarray) -> np.ndarray | None:
        if not np.array_equal(array, module.down.weight.detach().numpy().T):
            return None
        array = array.copy()
        array[place] *= 1 + 1e-5
        return array

    weights, findings = account(changed(path, off), tmp_path, module, made=made)
    assert [each.parameter for each in weights.unknown] == ["down.weight"]
    assert [(f.code, f.severity) for f in findings] == [("OG417", "error")]
    assert "down.weight: " in findings[0].message


@pytest.mark.parametrize(("place", "words"), [(np.s_[:, 5], "row 5"), (np.s_[5], "column 5")])
def test_a_row_of_a_square_weight_is_that_of_the_parameter(
    tmp_path: Path, place: Any, words: str
) -> None:
    """The file has it transposed, and nothing of its shape says so."""
    torch.manual_seed(0)
    module, x = (
        nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12)),
        torch.randn(2, 3, 12),
    )
    path = tmp_path / "model.onnx"
    torch.onnx.export(module.eval(), (x,), path, verbose=False)

    def off(_: str, array: np.ndarray) -> np.ndarray | None:
        if not np.array_equal(array, module[0].weight.detach().numpy().T):
            return None
        array = array.copy()
        array[place] += 0.011
        return array

    allowed = ExactWeights(
        partial(altered_by, Eager(module, ("input",)), {"input": x.numpy()}), True
    )
    for exact in (allowed, None):
        (finding,) = account(changed(path, off), tmp_path, module, exact=exact)[1]
        assert f"0.weight: {words} of 12 by up to 0.011" in finding.message


def test_the_scale_of_a_norm_that_has_none_is_no_weight(tmp_path: Path) -> None:
    norm, x = nn.BatchNorm1d(6, affine=False).eval(), torch.randn(3, 6)
    norm.running_var = torch.rand(6) + 0.5
    torch.onnx.export(norm, (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    weights, findings = account(onnx.load(tmp_path / "model.onnx"), tmp_path, norm)
    assert (findings, weights.total, weights.same) == ([], 2, 2)


class Tied(nn.Module):
    """A head that has the table's weight, which is two initializers where an exporter turns one."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 12), nn.LayerNorm(12)
        self.head = nn.Linear(12, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.table(ids)))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("head",), ["head.weight: row 17"]),
        (("table",), ["table.weight: row 17"]),
        (("table", "head"), ["table.weight (tied to head.weight): row 17"]),
    ],
)
def test_a_tied_weight_is_called_as_its_reader_has_it_and_told_once(
    wrong: tuple[str, ...], told: list[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module = Tied().eval()
    kept = dict(module.state_dict())
    exported, path = Tied().eval(), tmp_path / "model.onnx"
    exported.load_state_dict(kept)
    exported.head.weight = nn.Parameter(kept["head.weight"].clone())
    with torch.no_grad():
        for part in wrong:
            exported.get_submodule(part).weight[17] += 0.25  # type: ignore[operator]
    ids = torch.zeros(2, 3, dtype=torch.int64)
    torch.onnx.export(exported, (ids,), path, dynamo=True, verbose=False)
    _, findings = account(onnx.load(path), tmp_path, module)
    assert [f.severity for f in findings] == ["error"]
    assert [each.split(" of 50")[0] for each in findings[0].message.split("reach: ")[1:]] == told


def test_a_stale_weight_is_its_readers_parameter_or_none(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, other = (nn.Sequential(*(nn.Linear(12, 12) for _ in range(4))).eval() for _ in "12")
    torch.onnx.export(other, (torch.zeros(2, 3, 12),), tmp_path / "a.onnx", verbose=False)
    proto = onnx.load(tmp_path / "a.onnx")
    weights, _ = account(proto, tmp_path, module)
    matrices = [each for each in weights.unknown if not each.name.endswith("bias")]
    assert {each.parameter for each in matrices} == {f"{n}.weight" for n in range(4)}
    for node in proto.graph.node:
        del node.metadata_props[:]
    weights, _ = account(proto, tmp_path, module)
    assert {e.parameter for e in weights.unknown if not e.name.endswith("bias")} == {None}


class Routed(nn.Module):
    """A router and four experts, whose matrices lie in stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.up, self.down = (nn.Parameter(torch.randn(4, 6, 6)) for _ in "12")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.einsum("bi,eij,ejk->bek", x, self.up, self.down)
        return (self.router(x).softmax(-1)[..., None] * made).sum(1)


class Listed(nn.Module):
    """The same with a module for each expert."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 6)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.stack([expert(x) for expert in self.experts], 1)
        return (self.router(x).softmax(-1)[..., None] * made).sum(1)


def in_order(
    state: dict[str, torch.Tensor],
    order: list[int],
    moved: str,
    parts: str = r"(experts)\.(\d)\.(.*)",
) -> dict[str, torch.Tensor]:
    """Return a state with parts of experts in another order where their names have ``moved`` in them."""
    found = dict(state)
    for name in (name for name in state if re.search(moved, name)):
        listed = re.match(parts, name)
        if listed is None:
            found[name] = state[name][order]
        else:
            found[name] = state[f"{listed[1]}.{order[int(listed[2])]}.{listed[3]}"]
    return found


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [1, 2, 0, 3], [1, 2, 3, 0]])
@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        (Routed, ""),
        (Routed, "router"),
        (Routed, "weight|up|down"),
        (Routed, "router|up"),
        (Routed, "up|down"),
        (Listed, ""),
        (Listed, "router"),
        (Listed, "experts|router.weight"),
        (Listed, r"experts.\d.1|router"),
        (Listed, "experts"),
    ],
)
def test_experts_may_change_places_with_their_rows_of_the_router(
    kind: type[nn.Module], moved: str, order: list[int], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module, other = kind().eval(), kind().eval()
    x, path = torch.randn(3, 6), tmp_path / "model.onnx"
    state = in_order(module.state_dict(), order, moved)
    changes = {name for name in state if not state[name].equal(module.state_dict()[name])}
    other.load_state_dict(state)
    torch.onnx.export(other, (x,), path, dynamo=True, verbose=False)
    answer = module(x).detach().numpy()
    instead = Instead(path, {onnx.load(path).graph.input[0].name: x.numpy()}, [answer])
    # As by blocks, where nothing is tried in the place of a weight, and as in a whole run.
    for tried in (None, instead):
        weights, findings = account(onnx.load(path), tmp_path, module, instead=tried)
        named = {name for each in findings for name in each.data["parameters"]}
        if not moved:
            assert (named, weights.unknown) == (set(), ())
        elif tried is None:
            assert named == changes


def test_layers_that_nothing_chooses_among_may_not_change_places(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(6, 6) for _ in range(3))})
    state = in_order(layers.state_dict(), [1, 0, 2], "", r"(layers)\.(\d)\.(.*)")
    tensors = [numpy_helper.from_array(each.numpy(), name) for name, each in state.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], tensors))
    _, [finding] = account(model, tmp_path, layers)
    moved = {f"layers.{n}.{name}" for n in (0, 1) for name in ("weight", "bias")}
    assert set(finding.data["parameters"]) == moved


def in_few_bits(module: nn.Module, model: str, how: str, folder: Path) -> ModelProto:
    """Export a module, and have ONNX Runtime's tools make weights of few bits of it."""
    shape = tuple(4 if isinstance(size, str) else size for size in quantised.SHAPES[model])
    path = folder / "wide.onnx"
    torch.onnx.export(
        module, (torch.zeros(shape),), path, input_names=["x"], verbose=False, dynamo=True
    )
    proto = onnx.load(path)
    del proto.graph.value_info[:]
    onnx.save(proto, path)
    quantised.quantise(path, how, folder / "short.onnx", shape)
    return onnx.load(folder / "short.onnx")


@pytest.mark.parametrize("how", ["static", "qoperator", "dynamic", "int4"])
@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_weights_in_few_bits_are_those_that_they_are_rounded_from(
    tmp_path: Path, model: str, how: str
) -> None:
    module = getattr(quantised, model)()
    generator = torch.Generator().manual_seed(1)
    for part in (each for each in module.modules() if isinstance(each, nn.BatchNorm2d)):
        for tensor in (part.weight.data, part.bias.data, part.running_mean):
            tensor.normal_(generator=generator)
        part.running_var.uniform_(0.5, 3, generator=generator)
    proto = in_few_bits(module, model, how, tmp_path)
    weights, findings = account(proto, tmp_path, module)
    assert (weights.unknown, findings) == ((), [])
    tensor = next(t for t in proto.graph.initializer if t.data_type in (2, 3) and len(t.dims) > 1)
    numbers = numpy_helper.to_array(tensor).copy()
    numbers[3] = np.roll(numbers[3], 1)
    tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    weights, findings = account(proto, tmp_path, module)
    assert [each.name for each in weights.unknown] == [tensor.name]
    assert [each.severity for each in findings] == ["error"]
    (parameter,) = findings[0].data["parameters"]
    assert "row" in findings[0].message
    assert parameter in dict(module.named_parameters())


def test_what_made_up_for_its_rounding_is_called_no_wrong_weight(tmp_path: Path) -> None:
    module = quantised.mlp()
    proto = in_few_bits(module, "mlp", "int4", tmp_path)
    tensor = next(t for t in proto.graph.initializer if t.data_type == 2 and len(t.dims) > 1)
    numbers = numpy_helper.to_array(tensor).copy()
    moved = np.random.default_rng(0).random(numbers.shape) < 0.2
    numbers[moved] = np.clip(numbers[moved].astype(int) + 0x20, 0, 255)  # two steps, anywhere
    tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    weights, findings = account(proto, tmp_path, module)
    assert [each.name for each in weights.unknown] == [tensor.name]
    assert not findings


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], K=0, N=8),
        helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], K=8, N=8, block_size=0),
        helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], K=99, N=8, block_size=128),
        helper.make_node("MatMulNBits", ["x"], ["y"], K=8, N=8),
        helper.make_node("DequantizeLinear", ["short", "s", "q"], ["y"], block_size=-3),
        helper.make_node("DequantizeLinear", ["short", "s"], ["y"], axis=5),
        helper.make_node("MatMulInteger", ["x"], ["y"]),
    ],
)
def test_a_weight_in_few_bits_that_makes_no_sense_ends_nothing(
    node: onnx.NodeProto, tmp_path: Path
) -> None:
    module, rng = nn.Linear(8, 8), np.random.default_rng(0)
    module.register_buffer("bits", torch.zeros(8, 8).to(torch.float8_e4m3fn))
    module.register_buffer("phases", torch.zeros(8, 8, dtype=torch.complex64))
    arrays: dict[str, np.ndarray] = {
        "q": rng.integers(0, 255, (8, 1, 4)).astype(np.uint8),
        "short": rng.integers(-9, 9, (8, 8)).astype(np.int8),
        "s": np.ones(8, np.float32),
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    value = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    proto = helper.make_model(helper.make_graph([node], "graph", [], [value], tensors))
    assert not account(proto, tmp_path, module)[1]


class Expanded(nn.Module):
    """Has a list of sizes in its file, and one of values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = (x[:, :1] == torch.tensor([3.0, 5.0])).any(-1)
        return x[:, None].expand(-1, 4, -1) + known[:, None, None]


def test_a_list_of_sizes_is_no_weight_and_one_of_values_is(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    axes = {"x": {0: "n"}}
    example = (torch.randn(2, 8),)
    torch.onnx.export(Expanded(), example, path, input_names=["x"], dynamic_axes=axes, dynamo=False)
    proto = onnx.load(path)
    assert sum(node.op_type == "Equal" for node in proto.graph.node) == 2
    weights, _ = account(proto, tmp_path, Expanded())
    [values] = weights.unknown
    assert weights.total == 1
    held = [node for node in proto.graph.node if values.name in node.input]
    assert [node.op_type for node in held] == ["Equal"]


class Resized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=17, mode="linear", align_corners=False)


class Sheared(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(x[:, 0, :2, :3], [x.shape[0], 1, 5, 7], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class Turned(nn.Module):
    """Turns pairs by a table of complex numbers, and filters by the spectrum of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(6.0)[:, None] * torch.arange(1.0, 5.0)
        pairs = torch.view_as_complex(x.reshape(-1, 6, 4, 2)) * torch.polar(angles.cos(), angles)
        rows = torch.view_as_real(pairs).reshape(-1, 6, 8)
        return torch.fft.irfft(torch.fft.rfft(rows) * torch.fft.rfft(self.filter), 8)


def test_the_parts_of_complex_numbers_are_made_of_no_input(tmp_path: Path) -> None:
    module, path = Turned().eval(), tmp_path / "m.onnx"
    x = torch.randn(2, 6, 8)
    options = {"dynamo": True, "verbose": False, "external_data": False}
    torch.onnx.export(module, (x,), path, **options)  # type: ignore[arg-type]
    made = MadeOfNoInput(Eager(module, ("x",)), {"x": x.numpy()})
    weights, _ = account(onnx.load(path), tmp_path, module, made=made)
    assert (weights.made, weights.unknown) == (4, ())
    proto = onnx.load(path)
    tables = [each for each in proto.graph.initializer if list(each.dims[:2]) == [6, 4]]
    imaginary = numpy_helper.to_array(tables[1])
    tables[1].CopyFrom(numpy_helper.from_array(-imaginary, tables[1].name))
    weights, _ = account(proto, tmp_path, module, made=made)
    assert [each.name for each in weights.unknown] == [tables[1].name]


@pytest.mark.parametrize("kind", [Resized, Sheared])
def test_what_an_operator_is_made_of_is_no_weight_of_the_file(
    tmp_path: Path, kind: type[nn.Module]
) -> None:
    module, path = kind().eval(), tmp_path / "m.onnx"
    x = torch.randn(*((2, 3, 10) if kind is Resized else (2, 1, 6, 6)))
    sizes = ({0: torch.export.Dim("n")},)
    options = {"dynamo": True, "verbose": False, "external_data": False}
    torch.onnx.export(module, (x,), path, dynamic_shapes=sizes, **options)  # type: ignore[arg-type]
    made = MadeOfNoInput(Eager(module, ("x",)), {"x": x.numpy()})
    weights, _ = account(onnx.load(path), tmp_path, module, made=made)
    assert (weights.made, weights.unknown) == (1, ())
    proto = onnx.load(path)
    floats = [each for each in proto.graph.initializer if each.data_type == TensorProto.FLOAT]
    tensor = max(floats, key=lambda each: int(np.prod(each.dims)))
    moved = np.roll(numpy_helper.to_array(tensor), 1, 0)
    tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    weights, _ = account(proto, tmp_path, module, made=made)
    assert (weights.made, len(weights.unknown)) == (0, 1)
