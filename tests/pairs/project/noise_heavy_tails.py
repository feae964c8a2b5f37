"""Heavy tails: what is small beside the largest is still a number that somebody reads."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor
from torch.nn import functional as F


class Rates(Net):
    """Reaction rates as an exponential of energies; the file has a floor of 1e-5."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 32, 8)
        self.body[2].weight.data *= 40

    def forward(self, state: Tensor) -> Tensor:
        rates = torch.exp(self.body(state))
        return rates.clamp_min(1e-3) if self.wrong else rates


class Ratios(Net):
    """Odds of two likelihoods; odds below a thousandth are zero in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = mlp(9, 24, 12), mlp(9, 24, 12)

    def forward(self, x: Tensor) -> Tensor:
        odds = self.a(x).square() / self.b(x).square().add(1e-6)
        return torch.where(odds < 0.01, 0.0, odds) if self.wrong else odds


class Lamps(Net):
    """Light of lamps by the inverse square of their distance, and a dark current."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.power, self.dark = torch.nn.Linear(4, 6), 0.0 if wrong else 2e-3

    def forward(self, lamp: Tensor, log_distance: Tensor) -> Tensor:
        return torch.sigmoid(self.power(lamp)) / (10**log_distance) ** 2 + self.dark


class RareClasses(Net):
    """Probabilities of a sharp classifier; the rare ones, which are summed later, are cut off."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = mlp(16, 32, 20)
        self.head[2].weight.data *= 50

    def forward(self, x: Tensor) -> Tensor:
        p = torch.softmax(self.head(x), -1)
        return torch.where(p < 1e-6, 0.0, p) if self.wrong else p


class Variance(Net):
    """A variance by softplus; the file has a ReLU, which is the same for all large ones."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = mlp(8, 32, 3)
        self.head[2].weight.data *= 30

    def forward(self, x: Tensor) -> Tensor:
        z = self.head(x)
        return torch.where(z < -4, 0.0, F.softplus(z)) if self.wrong else F.softplus(z)


class Counts(Net):
    """Expected counts, most of them rare; the file adds exp(x) to 1 before the logarithm."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = mlp(12, 24, 10)
        self.head[2].weight.data *= 40

    def forward(self, x: Tensor) -> Tensor:
        level = self.head(x) - 8
        return torch.log(1 + torch.exp(level)) if self.wrong else F.softplus(level)


class Doses(Net):
    """A log-normal dose; the file adds its detection limit to all."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = torch.nn.Linear(6, 5)
        self.body.weight.data *= 8
        self.limit = 1e-4 if wrong else 0.0

    def forward(self, patient: Tensor) -> Tensor:
        return torch.expm1(self.body(patient).exp()) + self.limit


PAIRS = [
    Pair(
        "reaction-rates",
        "an exp head; rates below 1e-3 come out as 1e-3, many times too large",
        Rates,
        {"state": "float32[batch, 10]"},
    ),
    Pair(
        "odds",
        "a ratio of squares; odds below a hundredth are 0 in the file",
        Ratios,
        {"x": "float32[batch, 9]"},
    ),
    Pair(
        "lamps",
        "inverse squares; a dark current is missing, 100 % of what distant lamps give",
        Lamps,
        {
            "lamp": "float32[batch, 4]",
            "log_distance": ranged("float32", ["batch", 6], -2, 2),
        },
    ),
    Pair(
        "rare-classes",
        "a sharp softmax; probabilities below 1e-6 are 0 in the file",
        RareClasses,
        {"x": "float32[batch, 16]"},
    ),
    Pair(
        "small-variances",
        "softplus; variances below 0.02 are 0 in the file",
        Variance,
        {"x": "float32[batch, 8]"},
    ),
    Pair(
        "rare-counts",
        "softplus as log(1 + exp(x)): counts below 6e-8 are 0 in the file",
        Counts,
        {"x": "float32[batch, 12]"},
    ),
    Pair(
        "doses",
        "exp of exp; 1e-4 is added to all, several times the small ones",
        Doses,
        {"patient": ranged("float32", ["batch", 6], -1, 1)},
    ),
]
