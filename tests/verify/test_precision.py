"""float64 and moved rounding: what PyTorch can say about its own error."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.moved import run_moved
from onnx_gate.verify.reference.oracle import RUNS, CaseReference
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.workers.forked import run_forked
from tests.support.modules import MODULES


def eager(name: str) -> tuple[Eager, dict[str, np.ndarray]]:
    torch.manual_seed(0)
    module = MODULES[name]().eval()
    first = next(iter(__import__("inspect").signature(module.forward).parameters))
    return Eager(module, (first,)), {
        first: np.random.default_rng(0).normal(size=(4, 8)).astype("f4")
    }


@pytest.mark.parametrize("name", MODULES)
def test_any_module_runs_in_float64_and_is_left_as_it_was(name: str) -> None:
    model, inputs = eager(name)
    before = {k: (v.dtype, v.clone()) for k, v in model.module.state_dict().items()}
    own = model.run(inputs).arrays[0]
    wide = Float64Reference(model).run(inputs)
    assert wide is not None
    assert wide[0].dtype == np.float64
    error = np.abs(wide[0] - own).max()
    assert 0 < error < (1e-2 if name == "half" else 1e-6)
    for key, value in model.module.state_dict().items():
        assert value.dtype == before[key][0]
        assert torch.equal(value, before[key][1])
    assert np.array_equal(model.run(inputs).arrays[0], own)


def test_float64_is_float64_all_the_way() -> None:
    """Against the same formula in NumPy."""
    model, inputs = eager("hard-coded")
    linear = model.module.linear
    weight, bias = (p.detach().numpy().astype(np.float64) for p in (linear.weight, linear.bias))
    exact = (inputs["x"].astype(np.float64) @ weight.T + bias) / 3
    wide = Float64Reference(model).run(inputs)
    assert wide is not None
    assert np.abs(wide[0] - exact).max() < 1e-15


@pytest.mark.parametrize("name", ["hard-coded", "lstm", "batchnorm"])
def test_moved_rounding_is_of_the_size_of_rounding(name: str) -> None:
    model, inputs = eager(name)
    own = model.run(inputs).arrays[0]
    runs = [run_moved(model, inputs, MovedRounding(seed)) for seed in range(3)]
    for run in runs:
        assert run is not None
        assert 0 < np.abs(run[0] - own).max() < 3e-6
    assert not np.array_equal(runs[0][0], runs[1][0])  # type: ignore[index]
    again = run_moved(model, inputs, MovedRounding(0))
    assert again is not None
    assert np.array_equal(again[0], runs[0][0])  # type: ignore[index]


class Determinant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.det(x)


def test_a_determinant_of_almost_nothing_has_no_digits() -> None:
    model = Eager(Determinant().eval(), ("x",))
    x = np.stack([np.arange(9).reshape(3, 3) / 7, np.diag([1.0, 2, 3])]).astype(np.float32)
    runs = [run_moved(model, {"x": x}, MovedRounding(seed)) for seed in range(3)]
    own = model.run({"x": x}).arrays[0]
    singular, regular = np.abs([run[0] - own for run in runs if run is not None]).max(axis=0)
    assert singular > abs(own[0])
    assert 0 < regular < 1e-5


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LayerNorm(6), (3, 6)),
        (nn.LayerNorm(6, elementwise_affine=False), (3, 6)),
        (nn.GroupNorm(2, 6), (3, 6, 5)),
        (nn.BatchNorm2d(6), (3, 6, 5, 5)),
        (nn.InstanceNorm1d(6), (3, 6, 5)),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_normalisations_can_be_moved(
    module: nn.Module, shape: tuple[int, ...], constant: bool
) -> None:
    model = Eager(module.eval(), ("x",))
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    inputs = {"x": np.full_like(x, 0.3) if constant else x}
    run = run_moved(model, inputs, MovedRounding(0))
    assert run is not None
    moved = np.abs(run[0] - model.run(inputs).arrays[0]).max()
    assert 0 < moved < (1e-2 if constant else 1e-5)


class Positions(nn.Module):
    """Arithmetic on sizes and positions, which is exact in every implementation."""

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[0], dtype=torch.float32)
        places = torch.floor((steps * 4 + 2) / 4).long()
        return x[places.clamp(max=x.shape[0] - 1)]


@pytest.mark.parametrize("terms", [(0.5,), (0.25, 0.5)])
def test_sums_of_a_few_numbers_lose_more_than_sums_of_many(terms: tuple[float, ...]) -> None:
    """Equal terms round in one direction, whether they stand side by side or not."""

    class Survival(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 0.00123).cumsum(1)

    model = Eager(Survival().eval(), ("x",))
    rng = np.random.default_rng(0)
    lost = []
    for x in (rng.choice(terms, (1, 6000)), rng.uniform(-1, 1, (1, 6000))):
        inputs = {"x": x.astype("f4")}
        own, moved = model.run(inputs).arrays[0], run_moved(model, inputs, MovedRounding(0))
        assert moved is not None
        lost.append(np.abs(moved[0] - own).max() / np.abs(own).max())
    assert lost[0] > 10 * lost[1]


def test_what_an_engine_may_flush_is_flushed_in_half_of_the_runs() -> None:
    """A probability below the least normal number, and what it is multiplied by."""

    class Attends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(-1) @ torch.tensor([[0.0, 1.0], [3.0, 0.0]])

    model = Eager(Attends().eval(), ("x",))
    for x, seed, flushed in ((-88.0, 0, True), (-88.0, 1, False), (-80.0, 0, False)):
        inputs = {"x": np.array([[0.0, x]], np.float32)}
        own, moved = model.run(inputs).arrays[0], run_moved(model, inputs, MovedRounding(seed))
        assert moved is not None
        share = np.abs(moved[0] - own) / own
        assert share[0].tolist() == [
            pytest.approx(1 if flushed else 0, abs=1e-4),
            pytest.approx(0, abs=1e-4),
        ]


class Nodes(nn.Module):
    """The most of what edges bring, and what nodes without edges keep, of a number that is no sum."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        held = torch.full((6, 3), -1e9)
        at = torch.tensor([0, 0, 2, 2])
        if self.way == "index_add":
            return held.index_add(0, at, x)[[1, 3, 4, 5]]
        if self.way.startswith("index_"):
            return held.index_reduce(0, at, x, self.way.removeprefix("index_"))
        reduced = held.scatter_reduce(0, at[:, None].expand(4, 3), x, self.way)
        return reduced[[1, 3, 4, 5]] if self.way == "sum" else reduced


@pytest.mark.parametrize("way", ["amax", "amin", "index_amax", "sum", "index_add"])
def test_what_scatters_rounds_only_where_terms_are_added(way: str) -> None:
    """A finite number that stands for nothing is compared with itself afterwards."""
    model = Eager(Nodes(way), ("x",))
    inputs = {"x": np.random.default_rng(0).normal(size=(4, 3)).astype("f4")}
    run = run_moved(model, inputs, MovedRounding(0))
    assert run is None or np.array_equal(run[0], model.run(inputs).arrays[0])


def test_exact_arithmetic_is_not_moved() -> None:
    model = Eager(Positions(), ("x",))
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}
    run = run_moved(model, inputs, MovedRounding(0))
    assert run is not None
    assert np.array_equal(run[0], inputs["x"])


class Choice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, order = torch.sort(x * 1.0, dim=-1)
        return order[:, 1:3].unsqueeze(0), x.argmax(), x.max(dim=0, keepdim=True)[1]


def test_indices_are_traced_to_what_they_point_at() -> None:
    model = Eager(Choice(), ("x",))
    x = np.random.default_rng(0).permutation(20).reshape(4, 5).astype(np.float32)
    outputs = model.run({"x": x})
    oracle = CaseReference(model, Float64Reference(model), {"x": x}, outputs)
    for index, expected in enumerate([np.sort(x, -1)[:, 1:3][None], x.max(), x.max(0)[None]]):
        traced = oracle.output(index).searched()
        assert traced is not None
        picked = traced.own.gather(outputs.arrays[index])
        assert picked is not None
        assert np.array_equal(picked, expected)
        assert len(traced.moved) == RUNS


def test_work_aside_may_die() -> None:
    assert run_forked(lambda: {"a": [1, 2]}, 30) == ({"a": [1, 2]}, "")
    assert run_forked(lambda: os.kill(os.getpid(), signal.SIGKILL), 30) == ({}, "killed by SIGKILL")  # type: ignore[arg-type, return-value]
    assert run_forked(lambda: os._exit(0), 30)[1] == "ended with exit status 0 and no answer"
    assert run_forked(lambda: signal.pause(), 0.2)[1] == "no answer after 0 s"  # type: ignore[arg-type, return-value]


BOUNDED = {
    "sigmoid": (torch.sigmoid, 0, 1),
    "softmax": (lambda x: x.softmax(-1), 0, 1),
    "log_softmax": (lambda x: x.log_softmax(-1), -np.inf, 0),
    "hardsigmoid": (nn.functional.hardsigmoid, 0, 1),
    "tanh": (torch.tanh, -1, 1),
    "erf": (torch.erf, -1, 1),
    "erfc": (torch.erfc, 0, 2),
    "cos": (torch.cos, -1, 1),
    "softplus": (nn.functional.softplus, 0, np.inf),
    "expm1": (torch.expm1, -1, np.inf),
    "distance": (lambda x: torch.cdist(x.mT, x.mT), 0, np.inf),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_is_moved_stays_where_every_implementation_does(name: str) -> None:
    """Beyond it are numbers whose logarithms and roots are none, in every run at once."""
    function, low, high = BOUNDED[name]

    class Bounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = function(x)
            return made

    model = Eager(Bounded().eval(), ("x",))
    x = np.stack([np.linspace(-40, 40, 1601), np.full(1601, np.nan)]).astype(np.float32)
    for inputs in ({"x": x[:1]}, {"x": x[:, None]}):  # and beside what is no number
        own = model.run(inputs).arrays[0]
        for seed in range(4):
            moved = run_moved(model, inputs, MovedRounding(seed))
            assert moved is not None
            numbers = moved[0][~np.isnan(own)]
            assert (numbers >= low).all()
            assert (numbers <= high).all()
            assert (numbers != own[~np.isnan(own)]).any()


class Griffin(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a = torch.exp(-8 * torch.sigmoid(x))
        return torch.sqrt(1 - a * a)


class Angle(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        unit = nn.functional.normalize(x[..., None] + torch.arange(3.0), dim=-1)
        return torch.acos((unit * unit).sum(-1))


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a = torch.exp(-(torch.sigmoid(x) ** 2))
        return (1 - a).log_()


class Masked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nan_to_num(torch.sqrt(x), nan=-1.0)


@pytest.mark.parametrize("module", [Griffin, Angle, InPlace])
def test_rounding_carries_nothing_out_of_a_domain(module: type[nn.Module]) -> None:
    """Else there is no number in any run, and nothing would be known of the element."""
    model = Eager(module().eval(), ("x",))
    inputs = {"x": np.linspace(-40, 3, 801, dtype=np.float32)[None]}
    for seed in range(4):
        moved = run_moved(model, inputs, MovedRounding(seed))
        assert moved is not None
        assert not np.isnan(moved[0]).any()


def test_what_has_no_root_has_none_when_moved() -> None:
    model = Eager(Masked().eval(), ("x",))
    inputs = {"x": np.array([[-4.0, -1.0, -0.1, 0.1, 2.0]], np.float32)}
    moved = run_moved(model, inputs, MovedRounding(0))
    assert moved is not None
    assert (moved[0][0, :3] == -1).all()
