"""Weights that are widened as operators read them: the same numbers, without a copy of the model."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import psutil
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference import float64
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.workers.forked import run_forked
from tests.support.modules import MODULES


class Tied(nn.Module):
    """One matrix as an embedding, a projection, a slice and an output; a buffer as a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 8)
        self.norm = nn.LayerNorm(8)
        self.register_buffer("cache", torch.zeros(4, 8))

    cache: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.words(x.abs().long().clamp(max=7).sum(1) % 8) + self.words.weight[: x.shape[0]]
        self.cache[:] = self.norm(y)
        scores = F.linear(self.cache, self.words.weight)
        return scores, self.words.weight.t()[:2], self.words.weight.index_select(0, torch.tensor(1))


class LearnedQuery(nn.Module):
    """PyTorch's own check wants a query of the dtype of the keys, so its weights are doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query[None], x[None], x[None])


ALL = {**MODULES, "tied": Tied, "learned query": LearnedQuery}


@pytest.mark.parametrize("name", ALL)
def test_the_numbers_are_those_of_doubled_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module = ALL[name]().eval()
    inputs = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype("f4")}
    first = next(iter(__import__("inspect").signature(module.forward).parameters))
    inputs = {first: inputs["x"]}
    model = Eager(module, (first,))
    doubled = Float64Reference(model).run(inputs)
    own = model.run(inputs)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    monkeypatch.setattr(float64, "DOUBLED_BYTES", -1)
    lazy = Float64Reference(model).run(inputs)
    assert doubled is not None
    assert lazy is not None
    assert len(doubled) == len(own.arrays) == len(lazy)
    for a, b in zip(doubled, lazy, strict=True):
        assert a.dtype == b.dtype == np.float64
        assert np.array_equal(a, b)
    for key, value in module.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])


def _growth() -> dict[str, float]:
    """Megabytes that a float64 run of 256 MiB of weights adds at its peak."""
    width, layers = 2048, 16

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            seen.append(psutil.Process().memory_info().rss)
            return y

    seen: list[int] = []
    module = nn.Sequential(*(Watched(width, width) for _ in range(layers))).eval()
    model = Eager(module, ("input",))
    inputs = {"input": np.ones((2, width), np.float32)}
    model.run(inputs)
    before = psutil.Process().memory_info().rss
    seen.clear()
    assert Float64Reference(model).run(inputs) is not None
    return {"growth": (max(seen) - before) / 2**20}


def test_a_large_model_is_not_there_three_times() -> None:
    found, trouble = run_forked(_growth, 120)
    assert not trouble
    assert found["growth"] < 128, "doubled weights would be 512 MiB more"


@pytest.mark.parametrize("features", [8, 10])
def test_inputs_in_bfloat16_are_widened_as_numbers(features: int) -> None:
    torch.manual_seed(0)
    module = nn.Linear(features, 3).bfloat16().eval()
    x = np.random.default_rng(0).normal(size=(4, features)).astype(ml_dtypes.bfloat16)
    found = Float64Reference(Eager(module, ("x",))).run({"x": x})
    weight, bias = (p.detach().double().numpy() for p in module.parameters())
    assert found is not None
    np.testing.assert_allclose(found[0], x.astype(float) @ weight.T + bias, rtol=1e-14)
