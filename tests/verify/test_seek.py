"""Rows that climb: a side that only a search finds is found, within the domain of the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.around import COLUMNS, around, stepped_around
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.margin import apart, least
from onnx_gate.verify.reach.seek import CLIMBERS, Start, follows, seek
from onnx_gate.verify.reach.stack import Stack
from onnx_gate.verify.reach.values import IN_ORDER, draw_values
from onnx_gate.verify.reach.watcher import Watcher

WIDTH, END = 9, 16.0
KNOWN = {"x": Domain(InputSpec("float32", ("batch", WIDTH)), -END, END, (), True)}
NETWORKS = {
    "linear": lambda: nn.Linear(WIDTH, 5),
    "tanh": lambda: nn.Sequential(nn.Linear(WIDTH, 24), nn.Tanh(), nn.Linear(24, 5)),
    "gelu": lambda: nn.Sequential(
        nn.Linear(WIDTH, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 5)
    ),
    "relu": lambda: nn.Sequential(
        *(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))
    ),
}


class Floored(nn.Module):
    """Scales of densities, none of them below a floor."""

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.network, self.floor = NETWORKS[kind](), 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).exp().clamp(min=self.floor)


def lowest(module: nn.Module, rows: int = 64, steps: int = 200) -> float:
    """What a search without a budget comes to."""
    x = torch.randn(rows, WIDTH)
    found = torch.inf
    for _ in range(steps):
        made = module(x.requires_grad_())
        (gradient,) = torch.autograd.grad(made.log().amin(-1).sum(), x)
        found = min(found, float(made.detach().min()))
        x = (x.detach() - END / 40 * gradient.sign()).clamp(-END, END)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_what_a_long_search_finds_rows_that_climb_find(kind: str) -> None:
    for seed in range(4):
        module = Floored(kind, seed).eval()
        drawn = np.random.default_rng(seed).normal(size=(CLIMBERS[0], WIDTH)).astype("f4")
        with torch.no_grad():
            near = float(module(torch.from_numpy(drawn[:2])).min())
        module.floor = min(1.5 * lowest(module), 0.9 * near)
        watcher = Watcher(Eager(module, ("x",)))
        watcher.run({"x": drawn[:2]})
        follows(watcher, {"x": drawn[:2]}, KNOWN)
        ((site, side),) = (each for each in watcher.open() if each[0].operator == "clamp")
        *_, found = seek(watcher, site, side, Start({"x": drawn}, {}, len(drawn)), KNOWN)
        assert found is not None, seed
        assert np.abs(found["x"]).max() <= END
        with torch.no_grad():
            assert module.network(torch.from_numpy(found["x"])).exp().min() < module.floor


class Together(nn.Module):
    """A rule of three features, of which each is often so and all at once hardly ever."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.first(x), self.second(x)
        held = (one > 4.0) & (two < -4.0) & ~(x[:, :1] < 3.0)
        return torch.where(held, one - two, one)


class Either(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        kept = (x.sum(-1) < 60.0) | (x[:, 0] > x[:, 1] + 2.0)
        return x.masked_fill(~kept[:, None], 0.0)


class Experts(nn.Module):
    """One of five layers computes a row, and the last of them hardly ever."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.route, self.layers = nn.Linear(WIDTH, 5), nn.Linear(WIDTH, 5)
        self.way = way
        with torch.no_grad():
            self.route.bias[4] -= 12.0

    def forward(self, x: Tensor) -> Tensor:
        scores, made = self.route(x), self.layers(x)
        if self.way == "written out":
            return (nn.functional.one_hot(scores.argmax(-1), 5) * made).sum(-1)
        if self.way == "two of them":
            return torch.zeros_like(made).scatter(1, scores.topk(2).indices, 1.0) * made
        chosen = scores.max(-1, keepdim=True).indices
        return made * (chosen == 4)


class Cap(nn.Module):
    """The least of four, of which one is hardly ever the least."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.layers(x).unbind(-1)
        return torch.stack([a, b, c, a * 0 + 9.0 + x[:, 0]], 1).amin(1)


class Codes(nn.Module):
    """A rule of three codes; the third of them never decides it alone."""

    def forward(self, ids: Tensor) -> Tensor:
        return ((ids[:, 0] == 1731) & (ids[:, 1] == 29) & (ids[:, 2] >= 4200)).float()


class Neighbours(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return ((ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] == 77)).float()


HARDLY = {
    "and": (Together, "where", "true"),
    "both": (Together, "bitwise_and", "both"),
    "alone": (Codes, "bitwise_and", "first"),
    "codes": (Codes, "bitwise_and", "both"),
    "neighbours": (Neighbours, "bitwise_and", "both"),
    "or": (Either, "masked_fill", "true"),
    "written out": (lambda: Experts("written out"), "scatter", "rest"),
    "two of them": (lambda: Experts("two of them"), "scatter", "rest"),
    "equal": (lambda: Experts("equal"), "eq", "equal"),
    "extreme": (Cap, "amin", "rest"),
}


@pytest.mark.parametrize("name", HARDLY)
def test_what_is_hardly_ever_chosen_is_found(name: str) -> None:
    make, operator, side = HARDLY[name]
    module, draw = make().eval(), np.random.default_rng(0)
    given, known = {"x": draw.normal(size=(CLIMBERS[1], WIDTH)).astype("f4")}, KNOWN
    if make in (Codes, Neighbours):
        spec = InputSpec("int64", ("batch", WIDTH), (0, 9999))
        known = {"ids": Domain(spec, 0, 9999, (), True)}
        given = {"ids": draw.integers(0, 9999, (CLIMBERS[1], WIDTH))}
    watcher = Watcher(Eager(module, tuple(given)))
    watcher.run(given)
    follows(watcher, given, known)
    wanted = [s for s, left in watcher.open() if s.operator == operator and left == side]
    assert wanted
    for site in wanted:
        while side in watcher.seen[site].left(site):
            *_, found = seek(watcher, site, side, Start(given, {}, CLIMBERS[1]), known)
            assert found is not None
            watcher.run(found)


class Written(nn.Module):
    """Writes to what it has computed, and to a parameter's own values nothing leads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        made = self.layer(x).sigmoid_().mul_(2.0).clamp_(max=1.9999)
        return made * self.scale.relu()


def test_what_writes_to_its_values_has_gradients_too() -> None:
    watcher = Watcher(Eager(Written().eval(), ("x",)))
    given = {"x": np.random.default_rng(0).normal(size=(8, WIDTH)).astype("f4")}
    watcher.run(given)
    follows(watcher, given, KNOWN)
    (site,) = (each for each, _ in watcher.open() if each.operator == "clamp")
    *_, found = seek(watcher, site, "above", Start(given, {}, 8), KNOWN)
    assert found is not None


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int64", -(2**63), 2**63 - 1),
        ("uint64", 0, 2**64 - 1),
        ("int64", 17 * 10**17 + 1, 19 * 10**17 + 1),
        ("int32", -(2**31), 2**31 - 1),
        ("uint8", 0, 255),
        ("int64", 5, 5),
    ],
)
def test_whole_numbers_of_any_size_stay_in_their_domain(dtype: str, low: int, high: int) -> None:
    constants = [float(c) for c in (3, -4, 5, 6 * 10**11, 175 * 10**16) if low <= c <= high]
    for shape in ((40, 6), (40,), (3, 2, 7), (4, 0), ()):
        spec = InputSpec(dtype, shape, (low, high))
        domain = Domain(spec, float(low), float(high), tuple(constants), True)
        for way in (None, *range(IN_ORDER + 1)):
            drawn = draw_values({"x": spec}, {"x": domain}, {}, ("k",), way)["x"]
            assert drawn.shape == shape
            assert drawn.dtype == dtype
            assert all(low <= int(each) <= high for each in drawn.reshape(-1))


class Turned(Floored):
    """Has its batch behind what a row is made of, and behind what it makes of it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.T).exp().T.clamp(min=self.floor)


def test_rows_climb_along_whichever_axis_is_theirs() -> None:
    drawn = np.random.default_rng(0).normal(size=(CLIMBERS[1], WIDTH)).astype("f4")

    def climbed(kind: type[Floored], x: np.ndarray, axes: dict[str, int]) -> list[np.ndarray]:
        module = kind("tanh", 0).eval()
        module.floor = lowest(module if kind is Floored else Floored("tanh", 0).eval()) * 2
        watcher, tried = Watcher(Eager(module, ("x",))), list[np.ndarray]()
        run = watcher.eager.run_prepared

        def kept(tensors: Mapping[str, Tensor], **options: Any) -> Any:
            tried.append(tensors["x"].detach().numpy().copy())
            return run(tensors, **options)

        follows(watcher, {"x": x}, KNOWN)
        (site,) = watcher.seen
        monkey = pytest.MonkeyPatch()
        monkey.setattr(watcher.eager, "run_prepared", kept)
        *_, found = seek(watcher, site, "below", Start({"x": x}, {}, len(drawn), axes), KNOWN)
        assert found is not None
        monkey.undo()
        return tried

    rows = climbed(Floored, drawn, {"x": 0})
    turned = climbed(Turned, np.ascontiguousarray(drawn.T), {"x": 1})
    assert len(rows) == len(turned) > 1
    for one, other in zip(rows, turned, strict=True):
        np.testing.assert_allclose(one, other.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [1, 3, 32, 64, 100, 5000])
def test_what_is_moved_first_is_spread_over_an_input(columns: int) -> None:
    """A rule may be of any column: of a board all are moved, of a long row some of each part."""
    row = {"x": np.zeros((1, columns), np.int64)}
    spec = InputSpec("int64", ("batch", columns), range=(0, 1))

    def moved(times: int) -> list[int]:
        left = iter(range(times))
        given = around(
            Eager(nn.Identity(), ("input",)),
            row,
            {"x": Domain(spec, 0, 1, (), True)},
            Stack({"x": 0}),
            lambda: next(left, None) is not None,
        )
        return [int(each) for each in np.flatnonzero(given["x"].any(axis=0))]

    assert len(moved(COLUMNS + 1)) == min(columns, COLUMNS)
    few = moved(8)
    assert len(few) == min(columns, 8)
    assert max(np.diff([0, *few, columns])) <= max(columns, COLUMNS) // 8 + 1


def test_a_number_of_seconds_is_moved_by_days_and_by_hours_of_them() -> None:
    """An hour of the Sunday before is days and hours away; each minute of a day is near."""
    at = 1_700_000_000
    spec = InputSpec("int64", ("batch",), range=(0, 4_102_444_799))
    known = {"t": Domain(spec, 0, 4_102_444_799, (), True)}
    row = {"t": np.array([at])}

    def moved(*numbers: int) -> set[int]:
        found = stepped_around(row, known, Stack({"t": 0}), numbers)["t"]
        return {int(each) - at for each in found}

    hours = moved(86_400, 3_600)
    assert {3_600 * n for n in range(-7 * 24, 7 * 24 + 1)} <= hours
    assert {60 * n for n in range(-1_440, 1_441)} <= moved(86_400, 60)
    assert len(moved(*range(3, 90_000, 7))) <= 4_096
    assert not moved(7_000_000_000)


def test_a_truth_that_is_made_of_itself_pulls_on_a_tensor_once() -> None:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(40, generator=drawn, requires_grad=True)
    y = x * 2
    kept, distance = apart(y, 0.0), y
    for limit in torch.randn(12, generator=drawn).tolist():
        kept = least(kept, least(kept, apart(y, limit)).times(-1.0))
        distance = torch.minimum(distance, -torch.minimum(distance, y - limit))
    assert torch.equal(kept.distance, distance.detach())
    (pull,) = kept.pulls
    found = torch.zeros(40).index_add(0, pull.places, pull.factors)
    (gradient,) = torch.autograd.grad(distance.sum(), y)
    assert torch.equal(found, gradient)
