"""Outputs in float64 of which a float32 part is small: its noise is its own, not float32's of all."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor


class Arrival(Net):
    """A time of arrival: seconds since 1970 in float64 and a float32 correction."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.delay = mlp(8, 32, 1)
        self.factor = 60.0 if wrong else 30.0

    def forward(self, trip: Tensor, now: Tensor) -> Tensor:
        return now + self.factor * torch.tanh(self.delay(trip)).squeeze(1).double()


class Position(Net):
    """UTM coordinates in metres, moved by a float32 network of wholly other weights."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.shift, self.other = mlp(6, 24, 2), mlp(6, 24, 2)

    def forward(self, motion: Tensor, place: Tensor) -> Tensor:
        return place + 0.2 * (self.other if self.wrong else self.shift)(motion).double()


class Account(Net):
    """A balance in cents, and the interest that float32 works out."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.rate = mlp(5, 16, 1)
        self.days = 12.0 if wrong else 8.0

    def forward(self, customer: Tensor, balance: Tensor) -> Tensor:
        interest = torch.sigmoid(self.rate(customer)).squeeze(1) * self.days
        return balance + interest.double()


class Orbit(Net):
    """A Julian date and the light time that is taken from it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.path = mlp(3, 16, 4)
        if wrong:
            self.path[2].weight.data = self.path[2].weight.data.roll(1, 0)

    def forward(self, body: Tensor, day: Tensor) -> Tensor:
        return day.unsqueeze(1) - 0.005 * self.path(body).double()


PAIRS = [
    Pair(
        "time-of-arrival",
        "seconds since 1970 in float64; a correction of up to 30 s is doubled",
        Arrival,
        {"trip": "float32[batch, 8]", "now": ranged("float64", ["batch"], 1.6e9, 1.8e9)},
    ),
    Pair(
        "utm-position",
        "metres from the equator in float64; a shift of 0.2 m has other weights",
        Position,
        {"motion": "float32[batch, 6]", "place": ranged("float64", ["batch", 2], 4e6, 6e6)},
    ),
    Pair(
        "interest",
        "a balance of 1e8 in float64; the interest is half as large again",
        Account,
        {"customer": "float32[batch, 5]", "balance": ranged("float64", ["batch"], 1e7, 1e8)},
    ),
    Pair(
        "julian-date",
        "a Julian date in float64; minutes of light time in the wrong order",
        Orbit,
        {"body": "float32[batch, 3]", "day": ranged("float64", ["batch"], 2.45e6, 2.47e6)},
    ),
]
