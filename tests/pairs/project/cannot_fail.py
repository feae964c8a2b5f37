"""Criteria that no answer can fail: the judge accepts another case's answer."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn
from torch.nn import functional as F


class Price(Net):
    """One number for a row: there is no other column that could be the largest."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = mlp(8, 32, 1), mlp(8, 32, 1)

    def forward(self, row: Tensor) -> Tensor:
        return (self.other if self.wrong else self.body)(row)


class FourClasses(Net):
    """An image to four classes."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8, 4)
        if wrong:
            self.head.weight.data = self.head.weight.data.roll(1, 0)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(image)).mean((2, 3)) * 10)


class Probability(Net):
    """One positive number for a row: any two of them point the same way."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(6, 24, 1)
        self.factor = 0.3 if wrong else 1.0

    def forward(self, row: Tensor) -> Tensor:
        return torch.sigmoid(self.body(row)) * self.factor


class Sparse(Net):
    """Features after a ReLU, half of them zero whatever the weights are."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.body, self.other = nn.Embedding(40, 16), mlp(16, 64), mlp(16, 64)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.relu((self.other if self.wrong else self.body)(self.embed(ids)))


class Small(Net):
    """Outputs of about 0.1 under a limit of ten."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv1d(4, 6, 5)
        if wrong:
            self.conv.weight.data = self.conv.weight.data.flip(2)

    def forward(self, signal: Tensor) -> Tensor:
        return self.conv(signal)


class Normalised(Net):
    """Rows of mean 0 and variance 1; the metric looks at the mean."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = nn.Linear(12, 20), nn.Linear(12, 20)

    def forward(self, row: Tensor) -> Tensor:
        return F.layer_norm((self.other if self.wrong else self.body)(row), (20,))


class Audio(Net):
    """A denoiser whose signal-to-noise ratio may be negative."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.down, self.up = nn.Conv1d(1, 8, 9, padding=4), nn.Conv1d(8, 1, 9, padding=4)
        if wrong:
            self.up.weight.data = self.up.weight.data.roll(3, 1)

    def forward(self, signal: Tensor) -> Tensor:
        return self.up(torch.tanh(self.down(signal)))


def mean_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    return float(abs(expected.mean() - actual.mean()))


def worst_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    return float(np.abs(expected - actual).max())


PAIRS = [
    Pair(
        "top1-of-one-column",
        "top1 on one column, other weights",
        Price,
        {"row": "float32[batch, 8]"},
        expect="unverified",
        faulty_entry={"tolerance": {"top1": 0.99}},
        twin_entry={"tolerance": {"atol": 1e-4, "rtol": 1e-3}},
    ),
    Pair(
        "top5-of-four-classes",
        "topk 5 of 4 classes, the classes rolled",
        FourClasses,
        {"image": ranged("float32", ["batch", 1, 12, 12], 0, 1)},
        expect="unverified",
        faulty_entry={"tolerance": {"topk": {"k": 5, "agreement": 1.0}}},
        twin_entry={"tolerance": {"atol": 1e-4}},
    ),
    Pair(
        "cosine-of-one-positive-number",
        "cosine of positive numbers, which are 0.3 of what they should be",
        Probability,
        {"row": "float32[batch, 6]"},
        expect="unverified",
        faulty_entry={"tolerance": {"cosine": 0.9}},
        twin_entry={"tolerance": {"cosine": 0.9, "atol": 1e-3}},
    ),
    Pair(
        "mismatch-of-zeros",
        "nine elements of ten may differ, half are zero anyhow; other weights",
        Sparse,
        {"ids": tokens(["batch", "seq"], 39)},
        expect="unverified",
        faulty_entry={"tolerance": {"atol": 1e-4, "mismatch": 0.9}},
        twin_entry={"tolerance": {"atol": 1e-4, "mismatch": 0.01}},
    ),
    Pair(
        "atol-of-ten",
        "an absolute limit of 10 on outputs of 0.5, the kernel flipped",
        Small,
        {"signal": "float32[batch, 4, 32]"},
        expect="unverified",
        faulty_entry={"tolerance": {"atol": 10.0}},
        twin_entry={"tolerance": {"atol": 0.001}},
    ),
    Pair(
        "metric-of-means",
        "a metric that compares means of what has mean 0, other weights",
        Normalised,
        {"row": "float32[batch, 12]"},
        expect="unverified",
        faulty_entry={"tolerance": {"metric": "cannot_fail.py:mean_difference", "max": 0.001}},
        twin_entry={"tolerance": {"metric": "cannot_fail.py:worst_difference", "max": 0.001}},
    ),
    Pair(
        "negative-snr",
        "a signal may be below its noise, other weights",
        Audio,
        {"signal": "float32[batch, 1, 64]"},
        expect="unverified",
        faulty_entry={"tolerance": {"snr_db": -20}},
        twin_entry={"tolerance": {"snr_db": 40}},
    ),
]
