"""Systematic differences that no single element shows: below its noise, but in all of them."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor, nn


class Balance(Net):
    """One number: what is left of two large sums; its rounding is a percent of it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.flow = mlp(16, 64, 64)
        self.register_buffer("in_", 400 * (1 + torch.rand(64)))
        self.factor = 1.014 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        flow = torch.tanh(self.flow(x))
        inflow, outflow = flow + self.in_, self.in_
        return (inflow.cumsum(-1)[:, -1:] - outflow.cumsum(-1)[-1:]) * self.factor


class Anomaly(Net):
    """Deviations from a large mean, 64 columns; all of them 0.6 % too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(12, 64, 64)
        self.factor = 1.006 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        level = 3e4 + self.body(x)
        return (level - level.mean(-1, keepdim=True)) * self.factor


class Area(Net):
    """The share of an image that is bright; the file divides by the wrong number of pixels."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(1, 1, 5, padding=2)
        self.pixels = 4096 - 16 if wrong else 4096

    def forward(self, image: Tensor) -> Tensor:
        bright = (self.conv(image) > self.conv.bias + 0.05).float()
        return bright.sum((1, 2, 3)) / self.pixels


class Residual(Net):
    """A ReLU of what two equal terms leave, averaged."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Linear(8, 200)
        self.factor = 1.01 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        left = torch.relu((y + 2e3) * 1.0001 - (2e3 + y))
        return left * self.factor


class Drift(Net):
    """Eight channels of a large offset, to each of which the file adds 0.4 % of a unit."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(6, 24, 8)
        self.shift = 0.004 if wrong else 0.0

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return (y + 3e4) - 3e4 + self.shift


PAIRS = [
    Pair(
        "balance-of-flows",
        "one number, a difference of large sums, 1.4 % too large throughout",
        Balance,
        {"x": "float32[batch, 16]"},
    ),
    Pair(
        "anomalies",
        "deviations from a mean of 3e4, all 0.6 % too large",
        Anomaly,
        {"x": "float32[batch, 12]"},
    ),
    Pair(
        "share-of-bright-pixels",
        "a share of 4,096 pixels, 0.4 % too large throughout",
        Area,
        {"image": ranged("float32", ["batch", 1, 64, 64], 0, 1)},
    ),
    Pair(
        "what-two-terms-leave",
        "a ReLU of two terms that cancel, 1 % too large throughout",
        Residual,
        {"x": "float32[batch, 8]"},
    ),
    Pair(
        "drift-of-channels",
        "eight noisy channels, 0.004 too high throughout",
        Drift,
        {"x": "float32[batch, 6]"},
    ),
]
