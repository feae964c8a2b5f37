"""PyTorch itself answers NaN, or refuses: what was not compared is said, and is no agreement."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn


class Volatility(Net):
    """The logarithm of a ratio of prices; negative prices make it NaN."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(9, 3)
        if wrong:
            self.fc.weight.data *= 1.1

    def forward(self, price: Tensor) -> Tensor:
        return self.fc(torch.log(price[:, 1:] / price[:, :-1]))


class Root(Net):
    """The root of a quadratic, which ordinary coefficients do not have."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.scale = nn.Parameter(torch.rand(5) + (0.1 if wrong else 0.0))

    def forward(self, a: Tensor) -> Tensor:
        left = torch.sqrt(a.amin(-1, keepdim=True) - 0.1)
        return left * self.scale


class Angles(Net):
    """Angles of what should be cosines; beyond one they are NaN."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(12, 4)
        if wrong:
            self.fc.weight.data = self.fc.weight.data.roll(1, 0)

    def forward(self, cosine: Tensor) -> Tensor:
        return self.fc(torch.acos(cosine))


class NotSeven(Net):
    """Pairs of neighbours; PyTorch refuses an odd batch above one."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 1 and x.shape[0] % 2 == 1:
            raise ValueError("neighbours come in pairs")
        return self.fc(x)


class NotSevenFile(NotSeven):
    """The file answers at every size."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Short(Net):
    """A text that is longer than the table of positions is refused."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.at, self.head = nn.Embedding(20, 8), nn.Embedding(6, 8), nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        n = ids.shape[1]
        if n > 6:
            raise ValueError(f"a text of {n} tokens is longer than 6")
        return self.head(self.embed(ids) + self.at.weight[:n])


class ShortFile(Short):
    """The file takes the last position for all that come later."""

    def forward(self, ids: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1]).clamp_max(5)
        return self.head(self.embed(ids) + self.at.weight[at])


PAIRS = [
    Pair(
        "prices-below-zero",
        "the logarithm of a ratio of normal numbers; the twin says that prices are positive",
        Volatility,
        {"price": "float32[batch, 10]"},
        expect="remarked",
        twin_entry={"inputs": {"price": ranged("float32", ["batch", 10], 1, 100)}},
        witness=lambda rng: {"price": rng.uniform(1, 100, (3, 10)).astype(np.float32)},
    ),
    Pair(
        "root-of-a-minimum",
        "a root that is NaN on ordinary inputs; the twin says what they are",
        Root,
        {"a": "float32[batch, 7]"},
        expect="remarked",
        twin_entry={"inputs": {"a": ranged("float32", ["batch", 7], 0.2, 3)}},
        witness=lambda rng: {"a": rng.uniform(0.2, 3, (3, 7)).astype(np.float32)},
    ),
    Pair(
        "angles-of-no-cosines",
        "acos of normal numbers, rolled weights; the twin says that they are cosines",
        Angles,
        {"cosine": "float32[batch, 12]"},
        expect="remarked",
        twin_entry={"inputs": {"cosine": ranged("float32", ["batch", 12], -1, 1)}},
        witness=lambda rng: {"cosine": rng.uniform(-1, 1, (3, 12)).astype(np.float32)},
    ),
    Pair(
        "refused-at-seven",
        "PyTorch refuses odd batches, where the file answers; the twin's sizes are even",
        NotSeven,
        {"x": "float32[batch, 6]"},
        faulty=NotSevenFile,
        twin=NotSevenFile,
        faulty_entry={"dims": {"batch": [1, 2, 7]}},
        twin_entry={"dims": {"batch": [1, 2, 4]}},
        witness=lambda rng: {"x": rng.standard_normal((7, 6), np.float32)},
    ),
    Pair(
        "refused-beyond-the-table",
        "PyTorch refuses long texts, where the file answers; the twin's are short",
        Short,
        {"ids": {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, 19]}},
        faulty=ShortFile,
        twin=ShortFile,
        faulty_entry={"dims": {"seq": [2, 4, 7]}},
        twin_entry={"dims": {"seq": [2, 4, 6]}},
        witness=lambda rng: {"ids": rng.integers(0, 20, (2, 7))},
    ),
]
