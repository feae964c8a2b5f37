"""What is one kernel in PyTorch and several nodes in a graph: judged by what each of its parts may lose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onnx_gate.manifest import Tolerance
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.moved import moved
from onnx_gate.verify.reference.oracle import CaseReference

RULES = Rules(Tolerance(auto=10.0))
Function = Callable[..., Tensor]


class Of(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def hold(function: Function, inputs: tuple[np.ndarray, ...], candidate: np.ndarray) -> Judgement:
    names = tuple("xyz"[: len(inputs)])
    eager = Eager(Of(function), names)
    feeds = dict(zip(names, inputs, strict=True))
    reference = CaseReference(eager, Float64Reference(eager), feeds, eager.run(feeds))
    return judge(candidate, reference.outputs.arrays[0], RULES, reference.output(0))


def as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x)


def difference(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return a b - c d, of which every second row is fused: its first product is not rounded."""
    fused = (a.astype("f8") * b - (c * d)).astype("f4")
    return np.where(np.arange(len(a)).reshape(-1, *([1] * (a.ndim - 1))) % 2, fused, a * b - c * d)


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    (a, b), (c, d) = np.moveaxis(x, -1, 0), np.moveaxis(y, -1, 0)
    return np.stack([difference(a, c, b, d), difference(a, d, -b, c)], -1)


def quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    conjugate = y * np.array([1, -1], "f4")
    return product(x, conjugate) / np.square(y).sum(-1, keepdims=True)


def cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    first, second = [1, 2, 0], [2, 0, 1]
    return difference(x[..., first], y[..., second], x[..., second], y[..., first])


FAMILIES: dict[str, tuple[Function, Callable[..., np.ndarray], int]] = {
    "product": (lambda x, y: torch.view_as_real(as_complex(x) * as_complex(y)), product, 2),
    "quotient": (lambda x, y: torch.view_as_real(as_complex(x) / as_complex(y)), quotient, 2),
    "cross product": (torch.linalg.cross, cross, 3),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_products_that_cancel_are_moved_by_what_each_loses(family: str) -> None:
    function, in_parts, n = FAMILIES[family]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, n)).astype(np.float32)
    # Nearly parallel, or nearly the conjugate: a component is next to nothing, or nothing.
    y = (x * rng.normal(size=(4000, 1)) * (1 + rng.choice([0, 1e-6], size=x.shape))).astype("f4")
    y = y * np.array([1, -1], "f4") if family == "product" else y
    candidate = in_parts(x, y)
    judged = hold(function, (x, y), candidate)
    assert judged.holds, judged.reason
    other = np.roll(x, 1, 0)  # parallel to nothing
    right = in_parts(x, other)
    assert hold(function, (x, other), right).holds
    wrong = right.copy()
    wrong[7] *= 1.0001
    assert not hold(function, (x, other), wrong).holds


def test_sizes_of_complex_numbers_are_rounded() -> None:
    x = np.random.default_rng(0).normal(size=(4000, 2)).astype(np.float32)
    size = np.sqrt(np.square(x).sum(-1)).astype(np.float32)
    eager = Eager(Of(lambda x: as_complex(x).abs()), ("x",))
    run = moved(eager, {"x": x}, 0)
    assert run is not None
    off = np.abs(run.arrays[0] / eager.run({"x": x}).arrays[0] - 1)
    assert 1e-8 < off.mean() < 1e-6
    assert hold(lambda x: as_complex(x).abs(), (x,), size).holds


def test_what_is_below_the_least_normal_number_is_moved_by_whole_steps() -> None:
    """A weighted mean of what was long ago divides numbers of a few bits by each other."""
    x = np.random.default_rng(0).normal(size=(2, 950)).astype(np.float32)

    def decayed(x: Tensor) -> Tensor:
        weights = torch.pow(torch.tensor(0.9), torch.arange(x.shape[-1]))
        return (x * weights).flip(-1).cumsum(-1).flip(-1) / weights

    weights = np.power(np.float32(0.9), np.arange(950, dtype=np.float32))
    weights = weights.astype(np.float64).astype(np.float32)
    # Off by one step each, as those of another exponential are.
    low = weights < np.finfo(np.float32).smallest_normal
    assert low.any()
    weights[low] = np.nextafter(weights[low], np.float32(1))
    candidate = np.flip(np.cumsum(np.flip(x * weights, -1), -1, dtype=np.float32), -1) / weights
    assert hold(decayed, (x,), candidate).holds
    wrong = candidate.copy()
    wrong[0, 400] *= 1.001
    assert not hold(decayed, (x,), wrong).holds


def test_products_of_float16_that_underflow_may_be_kept() -> None:
    """ONNX Runtime computes a chain of float16 in float32, where nothing underflows."""
    x = np.random.default_rng(0).normal(size=(4000, 2)).astype(np.float32)
    x[:100] *= np.float32(1.5e-4)

    def chained(x: Tensor) -> Tensor:
        half = x.half()
        return (half[:, 0] * half[:, 1] * 3).float()

    half = x.astype(np.float16).astype(np.float32)
    candidate = half[:, 0] * half[:, 1] * 3
    judged = hold(chained, (x,), candidate)
    assert judged.holds, judged.reason
    wrong = candidate.copy()
    wrong[50] += 1e-5
    assert not hold(chained, (x,), wrong).holds


def test_what_is_no_number_takes_no_noise_from_its_neighbours() -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 24, 24)).astype(np.float32)
    holed = x.copy()
    holed[0, 0, 22, ::3] = np.nan
    resized = partial(F.interpolate, size=(31, 45), mode="bilinear", align_corners=True)
    eager = Eager(Of(resized), ("x",))

    def moves(x: np.ndarray) -> np.ndarray:
        runs = [moved(eager, {"x": x}, seed) for seed in range(16)]
        own = eager.run({"x": x}).arrays[0]
        return np.max([np.abs(run.arrays[0] - own) for run in runs if run is not None], axis=0)

    ratio = moves(holed) / moves(x)
    assert np.isnan(ratio).any()
    assert np.nanmin(ratio) > 0.3  # 0.05 where a hole in reach takes all
