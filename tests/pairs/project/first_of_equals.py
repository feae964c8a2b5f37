"""argmax, argmin, max and min promise the first of equals: on exact values it has to be that one."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class Votes(Net):
    """The winner of a vote: counts are exact and often equal."""

    def forward(self, ballots: Tensor) -> Tensor:
        counts = nn.functional.one_hot(ballots, 6).sum(1)
        if self.wrong:
            return 5 - counts.flip(1).argmax(1)
        return counts.argmax(1)


class EndOfText(Net):
    """The state at the first end-of-text token, as in CLIP."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(8, 16), nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        ends = (ids == 7).to(torch.int32)
        at = ids.shape[1] - 1 - ends.flip(1).argmax(1) if self.wrong else ends.argmax(1)
        h = self.embed(ids).gather(1, at.view(-1, 1, 1).expand(-1, 1, 16))
        return self.head(h.squeeze(1)), at


class Levels(Net):
    """The deepest level reached, and when it was first reached; levels are whole numbers."""

    def forward(self, depth: Tensor) -> tuple[Tensor, Tensor]:
        level = torch.round(depth)
        best = level.max(1)
        if self.wrong:
            return best.values, level.shape[1] - 1 - level.flip(1).argmax(1)
        return best.values, best.indices


class Quantised(Net):
    """The least loaded server; loads are in steps of a quarter."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.base = nn.Parameter(torch.arange(8) % 3 * 0.25, requires_grad=False)

    def forward(self, load: Tensor) -> Tensor:
        total = torch.floor(load * 4) / 4 + self.base
        return 7 - total.flip(1).argmin(1) if self.wrong else total.argmin(1)


class Scored(Net):
    """argmax over scores that are no exact numbers: the twin has no ties to get wrong."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(8, 24, 10)
        if wrong:
            self.body[2].weight.data = self.body[2].weight.data.roll(1, 0)
            self.body[2].bias.data = self.body[2].bias.data.roll(1, 0)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).argmax(-1)


PAIRS = [
    Pair(
        "votes",
        "the last of equal counts wins",
        Votes,
        {"ballots": tokens(["batch", 9], 5)},
    ),
    Pair(
        "first-end-of-text",
        "the last end-of-text token instead of the first",
        EndOfText,
        {"ids": tokens(["batch", "seq"], 7)},
    ),
    Pair(
        "first-deepest-level",
        "the last of equal maxima of whole numbers",
        Levels,
        {"depth": ranged("float32", ["batch", "time"], 0, 4)},
    ),
    Pair(
        "least-loaded-server",
        "the last of equal minima of quarters",
        Quantised,
        {"load": ranged("float32", ["batch", 8], 0, 2)},
    ),
    Pair(
        "rolled-classes",
        "argmax over rolled classes",
        Scored,
        {"x": "float32[batch, 8]"},
    ),
]
