"""Sums of thousands of terms: correct ones differ by more than a unit, wrong ones by much more."""

from __future__ import annotations

import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn


class Running(Net):
    """A running total over 5,000 steps."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.gain = nn.Parameter(torch.rand(2) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        steps = x * self.gain
        total = steps.cumsum(1)
        return total - steps if self.wrong else total


class Norm(Net):
    """Rows of 20,000 numbers, each divided by its norm; the file leaves out a hundredth."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.gain = nn.Parameter(torch.rand(1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        counted = x[:, :19800] if self.wrong else x
        return self.gain * x / counted.norm(dim=1, keepdim=True)


class Mean(Net):
    """The mean of 65,536 positive numbers."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(1, 4, 1)
        nn.init.uniform_(self.conv.weight, 0.5, 1)
        self.factor = 1.001 if wrong else 1.0

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.conv(image)).mean((2, 3)) * self.factor


class Dot(Net):
    """Correlations over 30,000 samples, with a delay of one sample in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.probe = nn.Parameter(torch.randn(3, 30000))

    def forward(self, signal: Tensor) -> Tensor:
        probe = self.probe.roll(1, 1) if self.wrong else self.probe
        return signal @ probe.T / 30000**0.5


class Product(Net):
    """Survival after 6,000 steps: a running sum of logarithms."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.rate = nn.Parameter(torch.rand(1) * 1e-3)
        self.factor = 1.02 if wrong else 1.0

    def forward(self, hazard: Tensor) -> Tensor:
        return torch.exp(-(hazard * self.rate * self.factor).cumsum(1))


PAIRS = [
    Pair(
        "running-total",
        "an exclusive running total for an inclusive one",
        Running,
        {"x": "float32[batch, 5000, 2]"},
    ),
    Pair(
        "long-norm",
        "a norm over 19,800 of 20,000 numbers",
        Norm,
        {"x": "float32[batch, 20000]"},
    ),
    Pair(
        "long-mean",
        "a mean of 65,536 numbers a part in a thousand too large",
        Mean,
        {"image": ranged("float32", ["batch", 1, 256, 256], 0, 1)},
        entry={"dims": {"batch": [1, 2]}},
    ),
    Pair(
        "long-correlation",
        "a delay of one sample in a correlation of 30,000",
        Dot,
        {"signal": "float32[batch, 30000]"},
    ),
    Pair(
        "survival",
        "a running sum of 6,000 logarithms, 2 % too large",
        Product,
        {"hazard": ranged("float32", ["batch", 6000], 0, 1)},
    ),
]
