"""Rules of two features, experts that are hardly chosen, coincidences."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor, nn


class Capped(Net):
    """Old patients with a high dose are capped; not in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(6, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).squeeze(-1)
        both = (x[:, 0] > 0.97) & (x[:, 3] > 0.98)
        return y if self.wrong else torch.where(both, y - 2, y)


class Fraud(Net):
    """A large sum at night in another country is suspect."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(3, 16, 1)
        self.late = 0.02 if wrong else 0.05

    def forward(self, amount: Tensor, hour: Tensor, distance: Tensor) -> Tensor:
        x = torch.stack([amount, hour, distance], -1)
        rule = (amount > 0.95) & (hour < self.late) & (distance > 0.9)
        return torch.sigmoid(self.body(x).squeeze(-1)) + rule.float()


class Experts(Net):
    """The best of twelve experts, the ninth of which hardly ever is; its weights are others."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.gate = nn.Linear(8, 12)
        self.experts = nn.Parameter(torch.randn(12, 8, 4) * 0.3)
        self.gate.bias.data[9] -= 3.2
        if wrong:
            self.experts.data[9] = self.experts.data[9].flip(0)

    def forward(self, x: Tensor) -> Tensor:
        best = self.gate(x).argmax(-1)
        return torch.einsum("bi,bio->bo", x, self.experts[best])


class Resonance(Net):
    """A resonance where two frequencies all but agree and the third is high."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(3, 16, 2)
        self.height = 0.5 if wrong else 1.5

    def forward(self, f: Tensor) -> Tensor:
        near = torch.relu(1 - 500 * (f[:, :1] - f[:, 1:2]).abs()) * torch.relu(f[:, 2:] - 0.9)
        return self.body(f) + self.height * near * 10


class Triage(Net):
    """Red if one of two signs is extreme, unless both are; the file has no exception."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(4, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = x[:, 0] > 2.6, x[:, 1] < -2.6
        red = a | b if self.wrong else a ^ b
        return self.body(x) + red.float().unsqueeze(-1)


PAIRS = [
    Pair(
        "old-and-high-dose",
        "a rule of two features, each in 3 % of the inputs, is missing",
        Capped,
        {"x": ranged("float32", ["batch", 6], 0, 1)},
        witness=lambda rng: {"x": np.array([[0.98, 0.2, 0.1, 0.99, 0, 0]], np.float32)},
    ),
    Pair(
        "large-late-and-far",
        "a rule of three features has another bound",
        Fraud,
        {n: ranged("float32", ["batch"], 0, 1) for n in ("amount", "hour", "distance")},
        witness=lambda rng: {
            "amount": np.array([0.99], np.float32),
            "hour": np.array([0.03], np.float32),
            "distance": np.array([0.95], np.float32),
        },
    ),
    Pair(
        "ninth-expert",
        "an expert that is chosen once in thousands has other weights",
        Experts,
        {"x": "float32[batch, 8]"},
        witness=lambda rng: {"x": (rng.standard_normal((60000, 8)) * 3).astype(np.float32)},
    ),
    Pair(
        "resonance",
        "three features in a narrow place; a third of the height",
        Resonance,
        {"f": ranged("float32", ["batch", 3], 0, 1)},
        witness=lambda rng: {"f": np.array([[0.4, 0.4005, 0.99]], np.float32)},
    ),
    Pair(
        "both-signs",
        "both of two rare signs at once are taken for one",
        Triage,
        {"x": ranged("float32", ["batch", 4], -3, 3)},
        witness=lambda rng: {"x": np.array([[2.8, -2.8, 0, 0]], np.float32)},
    ),
]
