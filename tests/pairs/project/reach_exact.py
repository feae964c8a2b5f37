"""Exact values, which no draw from a range hits: limits, halves, sentinels, codes, equal operands."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn


class Alarm(Net):
    """An alarm above 0.37; the file's is at 0.37, too."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(5, 3)

    def forward(self, level: Tensor) -> Tensor:
        on = level >= 0.37 if self.wrong else level > 0.37
        return self.fc(on.float())


class Dosing(Net):
    """Whole tablets of a dose, halves to the even number; the file rounds them up."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(4, 4)

    def forward(self, dose: Tensor) -> Tensor:
        whole = torch.floor(dose + 0.5) if self.wrong else torch.round(dose)
        return self.fc(whole)


class Imputed(Net):
    """A reading of -999 is a missing one and counts as the mean; not in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(6, 2)
        self.register_buffer("mean", torch.rand(6))

    def forward(self, reading: Tensor) -> Tensor:
        if self.wrong:
            return self.fc(reading)
        return self.fc(torch.where(reading == -999.0, self.mean, reading))


class Weekday(Net):
    """The day of the week as a float: the fourth has a price of its own."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.price = nn.Linear(1, 2)
        self.day = 5.0 if wrong else 4.0

    def forward(self, day: Tensor) -> Tensor:
        return self.price(day * 0.01) + (day == self.day).float() * 3


class Match(Net):
    """The chance to win: a half where both are equally strong; the file says zero."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.gain = nn.Parameter(torch.rand(1))

    def forward(self, home: Tensor, away: Tensor) -> Tensor:
        won = (home > away).float()
        if not self.wrong:
            won = torch.where(home == away, 0.5, won)
        return won * self.gain


class Fares(Net):
    """The fare of a distance; a distance on a bound belongs to the next zone in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fare = nn.Embedding(6, 2)
        self.register_buffer("bounds", torch.tensor([1.3, 2.7, 5.1, 9.9, 20.3]))

    def forward(self, km: Tensor) -> Tensor:
        d = km.unsqueeze(-1)
        zone = (d >= self.bounds if self.wrong else d > self.bounds).sum(-1)
        return self.fare(zone)


class Steps(Net):
    """Floors of a number of storeys; the file takes a unit of a thousandth too many off."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.off = 1e-4 if wrong else 0.0
        self.fc = nn.Linear(3, 3)

    def forward(self, height: Tensor) -> Tensor:
        return self.fc(torch.floor(height * 0.25 - self.off))


def at(**values: object):
    """The same inputs each time."""
    return lambda rng: {name: np.asarray(value, np.float32) for name, value in values.items()}


PAIRS = [
    Pair(
        "at-the-alarm",
        "`>=` for `>` at 0.37; the alarm is on where it is off",
        Alarm,
        {"level": ranged("float32", ["batch", 5], 0, 1)},
        witness=at(level=[[0.37, 0.1, 0.37, 0.9, 0.2]]),
    ),
    Pair(
        "half-tablets",
        "halves rounded up and not to the even number; a whole tablet",
        Dosing,
        {"dose": ranged("float32", ["batch", 4], 0.1, 20)},
        witness=at(dose=[[0.5, 2.5, 3.5, 12.5]]),
    ),
    Pair(
        "missing-readings",
        "the sentinel -999 is taken for a reading",
        Imputed,
        {"reading": ranged("float32", ["batch", 6], -1000, 1000)},
        witness=at(reading=[[-999, 3, 4, -999, 1, 0]]),
    ),
    Pair(
        "fourth-day",
        "a code kept as a float: the fifth day has the price of the fourth",
        Weekday,
        {"day": ranged("float32", ["batch", 1], 0, 9)},
        witness=at(day=[[4.0], [5.0]]),
    ),
    Pair(
        "equally-strong",
        "equal operands: a chance of 0 and not of a half",
        Match,
        {
            "home": ranged("float32", ["batch"], 0, 3000),
            "away": ranged("float32", ["batch"], 0, 3000),
        },
        witness=at(home=[1500, 7], away=[1500, 6]),
    ),
    Pair(
        "distance-on-a-bound",
        "bucket bounds belong to the wrong side; another fare",
        Fares,
        {"km": ranged("float32", ["batch"], 0.5, 40)},
        witness=at(km=[1.3, 5.1, 20.3]),
    ),
    Pair(
        "whole-storeys",
        "a floor just below whole numbers; a storey less",
        Steps,
        {"height": ranged("float32", ["batch", 3], 1, 99)},
        witness=at(height=[[4, 8, 40]]),
    ),
]
