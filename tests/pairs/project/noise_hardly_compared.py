"""Hardly anything was compared: outputs that are finite, alive or varied nowhere that is ordinary."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn


class Likelihood(Net):
    """A sum of logarithms of 16 numbers; NaN as soon as one of them is negative."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.shares = nn.Parameter(torch.rand(16, 4) * (1.3 if wrong else 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x) @ self.shares


class Above(Net):
    """A regression that is only made where the first reading is above three."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(8, 2)
        if wrong:
            self.fc.weight.data[:, 1:] *= 1.2

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1].abs() > 2.2, self.fc(x), torch.nan)


class Dead(Net):
    """A last ReLU that no input of the declared kind wakes."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = nn.Linear(8, 6), nn.Linear(8, 6)
        self.level = 60.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu((self.other if self.wrong else self.body)(x) - self.level)


class Certain(Net):
    """A probability that is 1 for everything."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid((self.other if self.wrong else self.body)(x) + 80.0)


class Scores(Net):
    """Scores of 30 boxes, those below 0.97 set to zero; all of them are."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = nn.Conv2d(3, 4, 3, 2), nn.Conv2d(3, 4, 3, 2)

    def forward(self, image: Tensor) -> Tensor:
        y = torch.sigmoid((self.other if self.wrong else self.body)(image)).flatten(1)
        return torch.where(y > 0.97, y, 0.0)


X = {"x": "float32[batch, 8]"}

PAIRS = [
    Pair(
        "finite-on-ones-alone",
        "sums of logs of normal numbers are NaN but on ones, where all weights give 0",
        Likelihood,
        {"x": "float32[batch, 16]"},
        expect="unverified",
        twin_entry={"inputs": {"x": ranged("float32", ["batch", 16], 0.1, 10)}},
        witness=lambda rng: {"x": rng.uniform(0.1, 10, (3, 16)).astype(np.float32)},
    ),
    Pair(
        "finite-in-few-rows",
        "NaN but in a row of thirty; the twin's range makes all of them numbers",
        Above,
        X,
        expect="remarked",
        twin_entry={"inputs": {"x": ranged("float32", ["batch", 8], 2.3, 6)}},
        witness=lambda rng: {"x": rng.uniform(2.3, 6, (3, 8)).astype(np.float32)},
    ),
    Pair(
        "dead-output",
        "0 in every case, whatever the weights; the twin's range wakes it",
        Dead,
        X,
        expect="remarked",
        twin_entry={"inputs": {"x": ranged("float32", ["batch", 8], -300, 300)}},
        witness=lambda rng: {"x": rng.uniform(-300, 300, (3, 8)).astype(np.float32)},
    ),
    Pair(
        "saturated-output",
        "1 in every case, whatever the weights; the twin's range moves it",
        Certain,
        X,
        expect="remarked",
        twin_entry={"inputs": {"x": ranged("float32", ["batch", 8], -400, 400)}},
        witness=lambda rng: {"x": rng.uniform(-400, 400, (3, 8)).astype(np.float32)},
    ),
    Pair(
        "no-score-high-enough",
        "no score is above the threshold, whatever the weights; the twin's range lifts some",
        Scores,
        {"image": ranged("float32", ["batch", 3, 12, 12], 0, 1)},
        expect="remarked",
        twin_entry={"inputs": {"image": ranged("float32", ["batch", 3, 12, 12], -9, 9)}},
        witness=lambda rng: {"image": rng.uniform(-9, 9, (3, 3, 12, 12)).astype(np.float32)},
    ),
]
