"""Constants of the dtype inside forward: in float64 the model computes another function."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class Entropy(Net):
    """Logarithms of counts' shares, guarded by the dtype's epsilon; many counts are zero."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = nn.Linear(10, 3)
        if wrong:
            self.head.weight.data *= 1.02

    def forward(self, counts: Tensor) -> Tensor:
        share = torch.relu(counts)
        share = share / share.sum(-1, keepdim=True).clamp_min(1)
        return self.head(torch.log(share + torch.finfo(share.dtype).eps))


class Tiny(Net):
    """Log spectra, guarded by the dtype's smallest normal number."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.bank = nn.Linear(16, 8, bias=False)

    def forward(self, spectrum: Tensor) -> Tensor:
        power = torch.relu(self.bank(spectrum))
        low = 1e-30 if self.wrong else torch.finfo(power.dtype).tiny
        return torch.log(power.clamp_min(low))


class Lowest(Net):
    """A maximum over what is marked, the dtype's lowest number elsewhere, then squashed."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(30, 12), mlp(12, 24, 4)
        if wrong:
            self.head[2].weight.data = self.head[2].weight.data.roll(1, 0)

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        h = self.embed(ids)
        low = torch.finfo(h.dtype).min
        best = h.masked_fill(~kept.unsqueeze(-1), low).amax(1)
        return self.head(torch.tanh(best))


class Precision(Net):
    """Angles whose cosine is kept inside (-1, 1) by the dtype's epsilon."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.project = nn.Linear(6, 6)
        self.factor = 1.03 if wrong else 1.0

    def forward(self, a: Tensor) -> Tensor:
        b = torch.sign(self.project(a))
        eps = torch.finfo(a.dtype).eps
        cosine = (b * torch.sign(a)).mean(-1)
        return torch.acos(cosine.clamp(-1 + eps, 1 - eps)) * self.factor


PAIRS = [
    Pair(
        "guarded-entropy",
        "finfo.eps inside forward; the file 2 % too large",
        Entropy,
        {"counts": "float32[batch, 10]"},
    ),
    Pair(
        "log-spectrum",
        "finfo.tiny inside forward; the file has 1e-30",
        Tiny,
        {"spectrum": ranged("float32", ["batch", 16], 0, 1)},
    ),
    Pair(
        "masked-maximum",
        "finfo.min inside forward; the file's classes rolled",
        Lowest,
        {"ids": tokens(["batch", "seq"], 29), "kept": "bool[batch, seq]"},
    ),
    Pair(
        "clamped-cosine",
        "1 - finfo.eps inside forward; the file 3 % too large",
        Precision,
        {"a": "float32[batch, 6]"},
    ),
]
