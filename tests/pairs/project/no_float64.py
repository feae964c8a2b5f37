"""Modules that cannot be run in float64: judged on the scale of their own output."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


def only_float32(x: Tensor) -> None:
    if x.dtype != torch.float32:
        raise TypeError(f"float32 is wanted, {x.dtype} was given")


class Metres(Net):
    """Displacements in metres, of about a micrometre."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = mlp(10, 32, 3), mlp(10, 32, 3)

    def forward(self, strain: Tensor) -> Tensor:
        only_float32(strain)
        return (self.other if self.wrong else self.body)(strain) * 1e-6


class Rare(Net):
    """Joint probabilities of four independent events, each of which is rare."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Linear(6, 12)
        self.factor = 1.2 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        only_float32(x)
        events = torch.sigmoid(self.body(x) - 5).view(-1, 3, 4)
        return events.prod(-1) * self.factor


class Dollars(Net):
    """Outputs of millions: float32 has no two decimals there."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.body = nn.Embedding(20, 12), mlp(20, 48, 2)
        self.factor = 1.01 if wrong else 1.0

    def forward(self, branch: Tensor, row: Tensor) -> Tensor:
        only_float32(row)
        y = self.body(torch.cat([self.embed(branch), row], -1))
        return torch.expm1(y.clamp(-3, 3)) * 3.5e6 * self.factor


class Field(Net):
    """A field strength of 1e-9, from a convolution with a hidden check in a submodule."""

    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            only_float32(x)
            return torch.tanh(self.conv(x))

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.first, self.last = Field.Checked(), nn.Conv2d(4, 1, 1)
        if wrong:
            self.last.weight.data *= 0.5

    def forward(self, potential: Tensor) -> Tensor:
        return self.last(self.first(potential)) * 1e-9


class Deep(Net):
    """Six layers of width 256: rounding of an ordinary size, and no float64 to tell."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(64, 256, 256, 256, 256, 256, 32)
        if wrong:
            self.body[10].weight.data *= 1.001

    def forward(self, x: Tensor) -> Tensor:
        only_float32(x)
        return self.body(x)


PAIRS = [
    Pair(
        "micrometres",
        "outputs of 1e-6 with wholly other weights",
        Metres,
        {"strain": "float32[batch, 10]"},
    ),
    Pair(
        "rare-events",
        "probabilities of 1e-9, 20 % too large",
        Rare,
        {"x": "float32[batch, 6]"},
    ),
    Pair(
        "millions",
        "outputs of millions, 1 % too large",
        Dollars,
        {
            "branch": tokens(["batch"], 19),
            "row": ranged("float32", ["batch", 8], -2, 2),
        },
    ),
    Pair(
        "weak-field",
        "outputs of 1e-9, half the weight",
        Field,
        {"potential": "float32[batch, 2, 8, 8]"},
    ),
    Pair(
        "deep-without-float64",
        "six wide layers, the last one a part in a thousand too large",
        Deep,
        {"x": "float32[batch, 64]"},
    ),
]
