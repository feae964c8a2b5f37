"""Modules on which float64 and moved rounding are tried: each makes it hard in its own way."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class HardCoded(nn.Module):
    """Converts to float32 by hand, and works in place on a tensor of its own making."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], 8, dtype=torch.float32)
        total += self.linear(x.float()).to(torch.float32)
        return total / torch.tensor(3.0)


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.half()).float()


class Hooked(nn.Module):
    """Returns what a hook has kept in a closure: a copy of it would return the original's."""

    def __init__(self) -> None:
        super().__init__()
        kept: list[Tensor] = []
        self.linear = nn.Linear(8, 8)
        self.linear.register_forward_hook(lambda m, a, out: kept.append(out))
        self.take = lambda: kept.pop()

    def forward(self, x: Tensor) -> Tensor:
        self.linear(x)
        return self.take()


MODULES = {
    "hard-coded": HardCoded,
    "half": Half,
    "hooked": Hooked,
    "lstm": lambda: nn.LSTM(8, 8, 2, bidirectional=True),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16),
    "batchnorm": lambda: nn.Sequential(nn.BatchNorm1d(8), nn.PReLU(), nn.Softmax(-1)),
}
