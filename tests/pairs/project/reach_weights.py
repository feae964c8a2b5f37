"""Weights that nothing drawn reads: rows of large tables, behind dead units, in other branches."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp, tokens
from torch import Tensor, nn


class Vocabulary(Net):
    """An embedding of 50,000 rows, one of which is another in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(50000, 8), mlp(8, 16, 4)
        if wrong:
            self.embed.weight.data[31415] = self.embed.weight.data[31416]

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


class Positions(Net):
    """A table of 2,048 positions, its last quarter that of another checkpoint."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.at = nn.Embedding(60, 8), nn.Embedding(2048, 8)
        if wrong:
            self.at.weight.data[1536:] *= 0.9

    def forward(self, ids: Tensor) -> Tensor:
        return self.embed(ids) + self.at.weight[: ids.shape[1]]


class DeadUnit(Net):
    """A unit that is dead behind its ReLU; its bias in the file is a stale one."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(10, 20), nn.Linear(20, 4)
        self.a.bias.data[7] = -60.0 if wrong else -30.0

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


class Adapters(Net):
    """One of four adapters by the language of a row; two matrices of the third are exchanged."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.down, self.up = nn.Parameter(torch.randn(4, 8, 8)), nn.Parameter(torch.randn(4, 8, 8))
        if wrong:
            down, up = self.down.data[3].clone(), self.up.data[3].clone()
            self.down.data[3], self.up.data[3] = up, down

    def forward(self, x: Tensor, load: Tensor) -> Tensor:
        which = torch.where(load > 9e5, 3, load % 3)
        h = torch.tanh(torch.einsum("bi,bio->bo", x, self.down[which]))
        return torch.einsum("bi,bio->bo", h, self.up[which])


class Tied(Net):
    """An embedding that is the last matrix as well; in the file one of its rows is not."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.body = nn.Embedding(20000, 8), mlp(8, 16, 8)
        self.rows = nn.Embedding(20000, 8)
        self.rows.weight.data = self.embed.weight.data.clone()
        if wrong:
            self.embed.weight.data[12345] *= -1

    def forward(self, ids: Tensor) -> Tensor:
        h = self.body(self.embed(ids))
        return h @ self.rows.weight[:64].T


class Types(Net):
    """Token types of which the second is not drawn where a text has one part."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.kind = nn.Embedding(90, 8), nn.Embedding(512, 8)
        if wrong:
            self.kind.weight.data[300:310] = 0.0

    def forward(self, ids: Tensor) -> Tensor:
        kind = (ids.cumsum(-1) // 4000).clamp_max(511)
        return self.embed(ids) + self.kind(kind)


class Renumbered(Net):
    """A table whose rows the file has in another order, behind a list of their numbers; one is wrong."""

    def __init__(self, wrong: bool = False, moved: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.moved = nn.Embedding(60000, 4), wrong or moved
        order = torch.from_numpy(np.random.default_rng(0).permutation(60000))
        self.place = order.argsort()
        if self.moved:
            self.embed.weight.data = self.embed.weight.data[order].clone()
        if wrong:
            self.place[31415] = self.place[31416]

    def forward(self, ids: Tensor) -> Tensor:
        return self.embed(self.place[ids] if self.moved else ids).sum(1)


class Blocked(Net):
    """Some ids are on a list of 60; the last of them is not in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.mark = nn.Embedding(60000, 4), nn.Parameter(torch.randn(4))
        self.register_buffer("blocked", torch.arange(977, 60000, 1000))

    def forward(self, ids: Tensor) -> Tensor:
        blocked = self.blocked[:59] if self.wrong else self.blocked
        hit = (ids.unsqueeze(-1) == blocked).any(-1).float().unsqueeze(-1)
        return (self.embed(ids) + hit * self.mark).mean(1)


PAIRS = [
    Pair(
        "row-of-50000",
        "one row of an embedding of 50,000 is its neighbour's",
        Vocabulary,
        {"ids": tokens(["batch", "seq"], 49999)},
        witness=lambda rng: {"ids": np.array([[31415, 5]])},
    ),
    Pair(
        "last-positions",
        "the last quarter of 2,048 positions is 10 % too small",
        Positions,
        {"ids": tokens(["batch", "seq"], 59)},
        witness=lambda rng: {"ids": rng.integers(0, 60, (1, 2000))},
    ),
    Pair(
        "stale-bias-of-a-dead-unit",
        "the bias of a dead unit is a stale one: no input shows it today",
        DeadUnit,
        {"x": "float32[batch, 10]"},
        expect="remarked",
        witness=lambda rng: {"x": (rng.choice([-60.0, 60.0], (400, 10))).astype(np.float32)},
    ),
    Pair(
        "adapter-never-loaded",
        "two matrices of an adapter that is never chosen are exchanged",
        Adapters,
        {
            "x": "float32[batch, 8]",
            "load": {"dtype": "int64", "shape": ["batch"], "range": [0, 900100]},
        },
        witness=lambda rng: {
            "x": rng.standard_normal((2, 8), np.float32),
            "load": np.array([900050, 3]),
        },
    ),
    Pair(
        "untied-row",
        "one row of 20,000 of a tied embedding is negated",
        Tied,
        {"ids": tokens(["batch", "seq"], 19999)},
        witness=lambda rng: {"ids": np.array([[12345, 7]])},
    ),
    Pair(
        "late-types",
        "ten rows that only long texts read are zeros",
        Types,
        {"ids": tokens(["batch", "seq"], 89)},
        witness=lambda rng: {"ids": np.full((1, 14000), 89)},
    ),
    Pair(
        "renumbered-rows",
        "one of 60,000 rows in another order has the place of its neighbour",
        Renumbered,
        {"ids": tokens(["batch", 3], 59999)},
        twin=lambda: Renumbered(moved=True),
        witness=lambda rng: {"ids": np.array([[1, 31415, 2]])},
    ),
    Pair(
        "list-cut-short",
        "the last of 60 ids is not on the list",
        Blocked,
        {"ids": tokens(["batch", 3], 59999)},
        twin=Blocked,
        witness=lambda rng: {"ids": np.array([[1, 59977, 2]])},
    ),
]
