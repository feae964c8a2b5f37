"""Rows that climb: a side that only a search finds is found, within the domain of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.seek import CLIMBERS, follows, seek
from onnx_gate.verify.reach.watch import Watcher

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
        *_, found = seek(watcher, site, side, {"x": drawn}, KNOWN, len(drawn))
        assert found is not None, seed
        assert np.abs(found["x"]).max() <= END
        with torch.no_grad():
            assert module.network(torch.from_numpy(found["x"])).exp().min() < module.floor
