"""Integers that are rarely drawn: special tokens, equals, single cells, large ids, calendars."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp
from torch import Tensor, nn


class Special(Net):
    """A masked token, 10,003 of 30,000, has no embedding; it has one in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(30000, 8), mlp(8, 16, 4)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        if not self.wrong:
            h = torch.where((ids == 10003).unsqueeze(-1), 0.0, h)
        return self.head(h)


class OwnPost(Net):
    """A user's own posts are shown first; not by the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.user, self.post = nn.Embedding(5000, 8), nn.Embedding(5000, 8)

    def forward(self, user: Tensor, author: Tensor) -> Tensor:
        score = (self.user(user) * self.post(author)).sum(-1)
        return score if self.wrong else score + (user == author).float() * 5


class Crossed(Net):
    """A table of 120 by 90 classes, one cell of which is another in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.table = nn.Embedding(120 * 90, 2)
        if wrong:
            self.table.weight.data[42 * 90 + 17] += 0.5

    def forward(self, shop: Tensor, item: Tensor) -> Tensor:
        return torch.tanh(self.table(shop * 90 + item))


class Hashed(Net):
    """Buckets of ids by their remainder; the file computes it in float32."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed = nn.Embedding(64, 4)

    def forward(self, ids: Tensor) -> Tensor:
        if self.wrong:
            ids = ids.float().long()
        return self.embed(ids % 64)


class Leap(Net):
    """Days of a year; 1900 is a leap year in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(1, 3)

    def forward(self, year: Tensor) -> Tensor:
        leap = year % 4 == 0
        if not self.wrong:
            leap = leap & ((year % 100 != 0) | (year % 400 == 0))
        days = 365 + leap.long()
        return self.fc((days.float() - 365).unsqueeze(-1))


class Negative(Net):
    """An hour of the day from a shift; before midnight the file's remainder is negative."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.hour = nn.Embedding(24, 3)

    def forward(self, hour: Tensor, shift: Tensor) -> Tensor:
        late = hour + shift
        there = torch.where(late == 24, 23, late % 24) if self.wrong else late % 24
        return self.hour(there)


class Unpadded(Net):
    """An embedding of 200,000 rows; the file leaves out one of them, as padding of another vocabulary."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(200000, 4), mlp(4, 8, 4)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        if self.wrong:
            h = h * (ids != 123457).unsqueeze(-1).float()
        return self.head(h.mean(1))


class End(Net):
    """Scores up to the end of a text, the token 31,337 of 50,000; the file's is the one before it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(50000, 4), nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        kept = ids != (31336 if self.wrong else 31337)
        return self.head((self.embed(ids) * kept.float().unsqueeze(-1)).sum(1))


class Graded(Net):
    """Grades by the edges that a mark is above, written out as comparisons; in the file at them, too."""

    def __init__(self, wrong: bool = False, plainly: bool = False) -> None:
        super().__init__(wrong)
        self.plainly, self.grade = plainly, nn.Embedding(6, 4)
        self.register_buffer("edges", torch.tensor([-1.37, -0.41, 0.13, 0.59, 1.21]))

    def forward(self, x: Tensor) -> Tensor:
        if self.plainly:
            return self.grade((x.unsqueeze(-1) > self.edges).long().sum(-1))
        if self.wrong:
            return self.grade((x.unsqueeze(-1) >= self.edges).long().sum(-1))
        return self.grade(torch.searchsorted(self.edges, x))


class Bucket(Net):
    """50,021 buckets of hashes; the file leaves one of them out."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed = nn.Embedding(50021, 4)

    def forward(self, ids: Tensor) -> Tensor:
        at = ((ids * 2654435761 + 97) % 4294967296) % 50021
        h = self.embed(at)
        if self.wrong:
            h = h * (at != 777).unsqueeze(-1).float()
        return h.sum(1)


class LastExpert(Net):
    """The last of 128 experts, which hardly any input chooses; the file has one fewer."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.router = nn.Linear(8, 128)
        self.experts = nn.Parameter(torch.randn(128, 8))
        with torch.no_grad():
            self.router.bias[127] -= 9.0

    def forward(self, x: Tensor) -> Tensor:
        at = self.router(x).argmax(-1)
        if self.wrong:
            at = at.clamp(max=126)
        return x * self.experts[at]


def ids(low: int, high: int, *shape: int | str) -> dict[str, object]:
    return {"dtype": "int64", "shape": list(shape), "range": [low, high]}


def at(**values: object):
    return lambda rng: {name: np.asarray(value, np.int64) for name, value in values.items()}


PAIRS = [
    Pair(
        "masked-token",
        "the embedding of one special token of 30,000 is not left out",
        Special,
        {"ids": ids(0, 29999, "batch", "seq")},
        witness=at(ids=[[3, 10003, 9]]),
    ),
    Pair(
        "own-posts",
        "two ids that are equal: a bonus of 5 is missing",
        OwnPost,
        {"user": ids(0, 4999, "batch"), "author": ids(0, 4999, "batch")},
        witness=at(user=[17, 4], author=[17, 5]),
    ),
    Pair(
        "crossed-cell",
        "one cell of 10,800 is half a unit off",
        Crossed,
        {"shop": ids(0, 119, "batch"), "item": ids(0, 89, "batch")},
        witness=at(shop=[42, 1], item=[17, 1]),
    ),
    Pair(
        "ids-beyond-float32",
        "ids above 2**24 through float32: another row",
        Hashed,
        {"ids": ids(0, 16777216 + 3000, "batch")},
        witness=at(ids=[16777217, 16777219, 16779001]),
    ),
    Pair(
        "year-1900",
        "a century is a leap year: a day too many",
        Leap,
        {"year": ids(1850, 2050, "batch")},
        witness=at(year=[1900, 2000, 1996]),
    ),
    Pair(
        "hour-24",
        "hour 24 is taken for 23 and not for 0",
        Negative,
        {"hour": ids(0, 23, "batch"), "shift": ids(-12, 12, "batch")},
        witness=at(hour=[23, 20], shift=[1, 4]),
    ),
    Pair(
        "unasked-padding",
        "the file alone leaves out one token of 200,000",
        Unpadded,
        {"ids": ids(0, 199999, "batch", 4)},
        witness=at(ids=[[3, 123457, 9, 7]]),
    ),
    Pair(
        "two-files-one-token",
        "the end of a text is the token before it, of 50,000",
        End,
        {"ids": ids(0, 49999, "batch", 4)},
        twin=End,
        witness=at(ids=[[3, 31336, 9, 7]]),
        reference=True,
    ),
    Pair(
        "edges-written-out",
        "a mark that is an edge has the grade above it",
        Graded,
        {"x": "float32[batch, 6]"},
        twin=lambda: Graded(plainly=True),
        witness=lambda rng: {"x": np.full((1, 6), 0.59, np.float32)},
    ),
    Pair(
        "bucket-left-out",
        "one bucket of 50,021 is left out",
        Bucket,
        {"ids": ids(0, 100000000, "batch", 3)},
        witness=lambda rng: {"ids": np.arange(300000).reshape(-1, 3)},
    ),
    Pair(
        "one-expert-fewer",
        "the last of 128 experts is the one before it",
        LastExpert,
        {"x": "float32[batch, 8]"},
        expect="remarked",
        witness=lambda rng: {"x": 200 * rng.normal(size=(4000, 8)).astype(np.float32)},
    ),
]
