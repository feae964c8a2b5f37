"""Part of a tensor is guarded by its dtype, and is another function in float64; the rest is not."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, tokens
from torch import Tensor, nn


class LogAndPlain(Net):
    """Log probabilities guarded by finfo.eps beside a plain regression."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.gate, self.plain = mlp(12, 24, 8), nn.Linear(12, 8), nn.Linear(12, 4)
        self.factor = 1.05 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.relu(self.body(x))
        logs = torch.log(shares + torch.finfo(x.dtype).eps)
        return torch.cat([logs, self.plain(x) * self.factor], -1)


class Ulps(Net):
    """Differences in units of the last place beside probabilities."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)
        if wrong:
            self.b.weight.data *= 1.3

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.round(self.a(x)) / torch.finfo(x.dtype).eps
        return torch.cat([steps, torch.sigmoid(self.b(x))], -1)


class Heads(Net):
    """Two heads, one of which is cooled in single precision only."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 24, 16)
        self.first, self.second = nn.Linear(16, 5), nn.Linear(16, 5)
        self.other = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.body(x))
        cool = 1.0 if x.dtype == torch.float64 else 0.5
        second = self.other(h) if self.wrong else self.second(h)
        return torch.cat([self.first(h) * cool, second], -1)


class Background(Net):
    """The best class; the background's score is guarded by finfo.tiny."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head, self.other = nn.Embedding(50, 16), mlp(16, 32, 11), mlp(16, 32, 11)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        scores = (self.other if self.wrong else self.head)(h)
        nothing = torch.relu(scores.sum(-1, keepdim=True) - 9)
        background = torch.log(nothing + torch.finfo(h.dtype).tiny) / 40
        return torch.cat([background, scores], -1).argmax(-1)


class Unit(Net):
    """Directions with a norm guarded by finfo.eps, and lengths."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.length = mlp(5, 16, 3), mlp(5, 16, 1)
        if wrong:
            self.length[2].bias.data += 0.02

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.relu(self.body(x) - 0.6)
        eps = torch.finfo(x.dtype).eps
        size = torch.log2(kept.norm(dim=-1, keepdim=True).clamp_min(eps))
        return torch.cat([size, self.length(x)], -1)


PAIRS = [
    Pair(
        "log-beside-plain",
        "columns of log(x + finfo.eps) beside plain ones, which are 5 % too large",
        LogAndPlain,
        {"x": "float32[batch, 12]"},
    ),
    Pair(
        "ulps-beside-probabilities",
        "columns divided by finfo.eps beside probabilities of wrong weights",
        Ulps,
        {"x": "float32[batch, 6]"},
    ),
    Pair(
        "one-head-by-dtype",
        "a head that depends on the dtype beside one that has other weights in the file",
        Heads,
        {"x": "float32[batch, 10]"},
    ),
    Pair(
        "background-by-dtype",
        "argmax over one class guarded by finfo.tiny and ten of wrong weights",
        Background,
        {"ids": tokens(["batch", "seq"], 49)},
    ),
    Pair(
        "norm-by-dtype",
        "a log norm guarded by finfo.eps beside a length with a shifted bias",
        Unit,
        {"x": "float32[batch, 5]"},
    ),
]
