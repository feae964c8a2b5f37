"""A noisy neighbour: what is precise is not excused by a column or row that is not."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor, nn


class Periodic(Net):
    """Fast sinusoids of a coordinate beside a plain regression of it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(3, 32, 5)
        self.register_buffer("speed", 10 ** torch.linspace(3, 5, 8))
        if wrong:
            self.body[2].weight.data *= 1.003
            self.body[2].bias.data *= 1.003

    def forward(self, at: Tensor) -> Tensor:
        waves = torch.sin(at.sum(-1, keepdim=True) * self.speed)
        return torch.cat([waves, self.body(at)], -1)


class Altitude(Net):
    """Height above ground as a difference of two large heights, and the weather there."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.slope = mlp(6, 24, 4), nn.Linear(6, 2)
        self.factor = 1.004 if wrong else 1.0

    def forward(self, place: Tensor) -> Tensor:
        ground = 6.371e6 + self.slope(place)
        above = (ground + 0.5 * torch.tanh(place[:, :2])) - ground.flip(-1)
        return torch.cat([above, self.body(place) * self.factor], -1)


class Contrast(Net):
    """Logarithms of differences of nearly equal readings beside their mean."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.read = nn.Linear(7, 5)
        self.factor = 1.002 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        a = self.read(x)
        b = a + 1e-5 * torch.sin(a * 7)
        return torch.cat([torch.log((a - b).abs() + 1e-7), torch.tanh(a) * self.factor], -1)


class Phases(Net):
    """Rows at times from a second to months, each with a regression of its own."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(4, 24, 6)
        self.factor = 1.005 if wrong else 1.0

    def forward(self, x: Tensor, decades: Tensor) -> Tensor:
        phase = torch.sin(10**decades * 6.2831853).unsqueeze(1)
        return self.body(x) * self.factor + phase


class Depth(Net):
    """A map of two channels: a fringe of fast phase, and what is in the picture."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 2, 1)
        self.factor = 1.003 if wrong else 1.0

    def forward(self, image: Tensor) -> Tensor:
        y = self.head(torch.tanh(self.conv(image)))
        return torch.cat([torch.cos(3e4 * y[:, :1]), torch.sigmoid(y[:, 1:]) * self.factor], 1)


PAIRS = [
    Pair(
        "beside-fast-waves",
        "sin(1e5 x) beside a regression that is 0.3 % too large",
        Periodic,
        {"at": ranged("float32", ["batch", 3], -1, 1)},
    ),
    Pair(
        "beside-differences-of-heights",
        "differences of numbers of 6e6 beside columns 0.4 % too large",
        Altitude,
        {"place": "float32[batch, 6]"},
    ),
    Pair(
        "beside-logs-of-differences",
        "log of differences of equals beside columns 0.2 % too large",
        Contrast,
        {"x": "float32[batch, 7]"},
    ),
    Pair(
        "beside-rows-of-late-times",
        "rows whose phase is noise beside rows 0.5 % too large",
        Phases,
        {"x": "float32[batch, 4]", "decades": ranged("float32", ["batch"], 0, 7)},
    ),
    Pair(
        "beside-fringes",
        "a channel of fringes beside one of probabilities 0.3 % too large",
        Depth,
        {"image": ranged("float32", ["batch", 1, 12, 12], 0, 1)},
    ),
]
