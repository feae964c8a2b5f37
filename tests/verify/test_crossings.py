"""Limits that only arithmetic between inputs meets: each is met exactly, in every column."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.roles import default_sizes
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import Stream, draw
from onnx_gate.verify.reach.crossings import spread
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.explore import Explorer
from onnx_gate.verify.reach.watcher import Watcher

KEYS = np.arange(12) * 77_777 + 3_007
COLUMNS = (np.arange(64) - 20) * 0.125


class Decided(nn.Module):
    """Decides by what a function makes of its inputs."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


def _nines(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x == torch.pow(10.0, y.float()) - 1, x + 5, x)


def _products(x: Tensor, y: Tensor) -> Tensor:
    return (x * y[:, :1] >= 50_000).float()


def _keys(x: Tensor, y: Tensor) -> Tensor:
    return ((x * 1000 + y)[..., None] >= torch.from_numpy(KEYS)).sum(-1)


def _sorted(x: Tensor, y: Tensor) -> Tensor:
    return torch.searchsorted(torch.from_numpy(KEYS), x * 1000 + y, right=True)


def _differences(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x - y >= torch.from_numpy(COLUMNS).float(), 2.0, 1.0)


def _halves(x: Tensor, y: Tensor) -> Tensor:
    return torch.round(x / y)


def _is_half(x: Array, y: Array) -> Array:
    quotient = x.astype(np.float64) / y
    return np.asarray((quotient % 1 == 0.5) & (quotient * y == x))


WHOLE = InputSpec("int64", ("batch", 10), (0, 999))
FLOATS = InputSpec("float32", ("batch", 64), None)
# What is computed, of which inputs, and which of its elements are exactly at a limit.
MET: Mapping[
    str, tuple[Callable[..., Tensor], tuple[InputSpec, InputSpec], Callable[..., Array]]
] = {
    "power": (
        _nines,
        (
            InputSpec("float32", ("batch", 3), (0, 20_000)),
            InputSpec("int64", ("batch", 3), (0, 4)),
        ),
        lambda x, y: (x == 9999) & (y == 4),
    ),
    "product": (
        _products,
        (
            InputSpec("int64", ("batch", 6), (0, 100_000)),
            InputSpec("int64", ("batch", 6), (0, 90)),
        ),
        lambda x, y: x * y[:, :1] == 50_000,
    ),
    "keys": (_keys, (WHOLE, WHOLE), lambda x, y: (x * 1000 + y)[..., None] == KEYS),
    "sorted": (_sorted, (WHOLE, WHOLE), lambda x, y: (x * 1000 + y)[..., None] == KEYS),
    "differences": (
        _differences,
        (FLOATS, FLOATS),
        lambda x, y: x - y == COLUMNS.astype(np.float32),
    ),
    "halves": (
        _halves,
        (
            InputSpec("float32", ("batch", 5), (-200, 200)),
            InputSpec("float32", ("batch", 5), (0.5, 4)),
        ),
        _is_half,
    ),
}


def _searched(function: Callable[..., Tensor], *specs: InputSpec) -> list[Case]:
    """Return the cases that the steps of a function of two inputs have."""
    inputs = dict(zip("xy", specs, strict=True))
    spec = ModelSpec("m", "m.py:m", inputs, dims=default_sizes(inputs))
    explorer = Explorer(spec, Watcher(Eager(Decided(function).eval(), ("x", "y"))))
    arrays = {n: draw(s, (7, *map(int, s.shape[1:])), Stream(n)) for n, s in inputs.items()}
    case = Case("typical", "base", "random", arrays, {"batch": 7})
    explorer.watcher.run(case.arrays)
    explorer.learn(case)
    return [case for case in explorer.cases() if case.id.startswith("reached/steps/")]


@pytest.mark.parametrize("name", MET)
def test_what_arithmetic_makes_of_inputs_meets_its_limit_in_every_column(name: str) -> None:
    function, specs, is_met = MET[name]
    cases = _searched(function, *specs)
    assert 0 < len(cases) <= 4
    met = np.concatenate([is_met(case.arrays["x"], case.arrays["y"]) for case in cases])
    assert met.any(axis=0).all(), np.flatnonzero(~met.any(axis=0))


def test_what_meets_a_limit_has_few_bits_and_a_case_of_its_own() -> None:
    """In one tensor with others nobody could tell that it is exact."""

    def scaled(x: Tensor, y: Tensor) -> Tensor:
        return (x * 0.5 + 1 >= 2.25).float() + 0 * y

    cases = {case.id: case.arrays["x"] for case in _searched(scaled, FLOATS, FLOATS)}
    even = cases["reached/steps/x/even"]
    assert (even == 2.5).any(axis=0).all()
    assert (even * 256 == np.rint(even * 256)).all()
    others = cases["reached/steps/x"]
    assert (np.abs(others - 2.5) < 1e-6).any(axis=0).all()


def test_the_same_is_found_whatever_the_number_of_threads() -> None:
    function, specs, _ = MET["differences"]
    threads = torch.get_num_threads()
    try:
        found = []
        for each in (1, 2):
            torch.set_num_threads(each)
            found.append(_searched(function, *specs))
    finally:
        torch.set_num_threads(threads)
    one, other = found
    assert [case.id for case in one] == [case.id for case in other]
    for left, right in zip(one, other, strict=True):
        assert all(np.array_equal(left.arrays[n], right.arrays[n]) for n in "xy")


@pytest.mark.parametrize(("low", "high"), [(-3.3, 8.1), (0.0, 1e-30), (1e6, 1e6 + 1)])
def test_values_between_two_are_those_of_fewest_bits(low: float, high: float) -> None:
    domain = Domain(InputSpec("float32", (1,), (low, high)), low, high, (), True)
    values = spread(domain, low, high, 64)
    assert (np.diff(values) > 0).all()
    steps = np.diff(values[1:-1])
    assert len(np.unique(steps)) <= 1
    assert np.log2(steps[0]) % 1 == 0
    assert 16 <= len(values) <= 66


class Varied(nn.Module):
    """Divides by a deviation that is next to nothing where a gradient leads alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x)
        h = h - h.mean(-1, keepdim=True)
        return h / torch.sqrt(h.square().mean(-1, keepdim=True) + 1e-10)


def test_a_variance_of_nothing_is_climbed_to() -> None:
    inputs = {"x": InputSpec("float32", ("batch", 8), None)}
    spec = ModelSpec("m", "m.py:m", inputs, dims=default_sizes(inputs))
    module = Varied().eval()
    explorer = Explorer(spec, Watcher(Eager(module, ("x",))))
    arrays = {"x": draw(inputs["x"], (7, 8), Stream("x"))}
    explorer.watcher.run(arrays)
    explorer.learn(Case("typical", "base", "random", arrays, {"batch": 7}))
    found = [case.arrays["x"] for case in explorer.cases() if case.id.endswith("/within")]
    assert found
    with torch.no_grad():
        variances = module.layer(torch.from_numpy(found[0])).var(-1, correction=0)
    assert float(variances.min()) <= 1e-9
