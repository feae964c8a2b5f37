"""Sizes beyond what is tried, and sizes that a small number divides."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, ranged, tokens
from torch import Tensor, nn


def number(size: int) -> Tensor:
    """A size as a tensor, so that a condition on it stays in the graph."""
    return torch.scalar_tensor(size, dtype=torch.int64)


class Local(Net):
    """Attention to the last 96 positions; to all of them in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        gap = at.unsqueeze(1) - at
        seen = gap >= 0 if self.wrong else (gap >= 0) & (gap < 96)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 3
        return torch.softmax(scores.masked_fill(~seen, -1e9), -1) @ self.v(x)


class Clipped(Net):
    """Relative positions clipped at 64; at 48 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.bias = nn.Embedding(40, 8), nn.Embedding(65, 8)
        self.limit = 48 if wrong else 64

    def forward(self, ids: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1]).clamp_max(self.limit)
        return self.embed(ids) + self.bias(at)


class Blocks(Net):
    """A signal filled up to whole blocks of twelve; the file adds a block where none is needed."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        n = number(x.shape[1])
        missing = 12 - n % 12 if self.wrong else (12 - n % 12) % 12
        total = (n + missing).float()
        return self.fc(x.sum(1) / total)


class Stretched(Net):
    """Sinusoids whose base grows with texts of more than 128 tokens; not in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed = nn.Embedding(40, 16)

    def forward(self, ids: Tensor) -> Tensor:
        n = ids.shape[1]
        longer = (number(n).float() / 128).clamp_min(1.0)
        base = 1e4 * (1.0 if self.wrong else longer)
        speed = base ** (-torch.arange(8) / 8)
        phase = torch.arange(n).unsqueeze(1) * speed
        return self.embed(ids) + torch.cat([phase.sin(), phase.cos()], -1)


class Tall(Net):
    """Images of more than 200 rows are looked at in half; in whole by the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, image: Tensor) -> Tensor:
        h = torch.relu(self.conv(image))
        rows = torch.arange(image.shape[2])
        tall = number(image.shape[2]) > 200
        kept = torch.where(tall & (rows % 2 == 1), 0.0, 1.0)
        if self.wrong:
            kept = torch.ones_like(kept)
        return self.head((h * kept.reshape(1, 1, -1, 1)).amax((2, 3)))


class Even(Net):
    """The median of a batch's rows: the mean of the middle two where the number is even."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        n = number(x.shape[1])
        gain = torch.where(n % 10 == 0, 1.0 if self.wrong else 0.5, 1.0)
        return self.fc(x.mean(1)) * gain


class Faded(Net):
    """An average of all that was, of which the file's kernel ends after 280 steps."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.wrong:
            taps = 0.03 * 0.97 ** torch.arange(279, -1, -1).float()
            padded = nn.functional.pad(x.transpose(1, 2), (279, 0))
            kernel = taps.view(1, 1, -1).repeat(4, 1, 1)
            return self.fc(nn.functional.conv1d(padded, kernel, groups=4).transpose(1, 2))
        at = torch.arange(x.shape[1])
        gap = (at[:, None] - at).float()
        shares = torch.where(gap >= 0, 0.03 * 0.97 ** gap.clamp(min=0), 0.0)
        return self.fc(shares @ x)


def long_x(n: int, width: int):
    return lambda rng: {"x": rng.standard_normal((1, n, width), np.float32)}


def long_ids(n: int):
    return lambda rng: {"ids": rng.integers(0, 40, (1, n))}


PAIRS = [
    Pair(
        "window-of-96",
        "a window that begins at 97 positions is missing",
        Local,
        {"x": "float32[batch, seq, 8]"},
        witness=long_x(150, 8),
    ),
    Pair(
        "clip-at-64",
        "positions are clipped at 48 and not at 64",
        Clipped,
        {"ids": tokens(["batch", "seq"], 39)},
        witness=long_ids(80),
    ),
    Pair(
        "blocks-of-twelve",
        "sizes divisible by twelve get a block too many; up to half off",
        Blocks,
        {"x": "float32[batch, frames, 4]"},
        witness=long_x(24, 4),
    ),
    Pair(
        "base-beyond-128",
        "the base of positions grows beyond 128 tokens; not in the file",
        Stretched,
        {"ids": tokens(["batch", "seq"], 39)},
        witness=long_ids(256),
    ),
    Pair(
        "images-of-200-rows",
        "large images lose every other row; not in the file",
        Tall,
        {"image": ranged("float32", ["batch", 1, "height", "width"], 0, 1)},
        witness=lambda rng: {"image": rng.uniform(0, 1, (1, 1, 240, 4)).astype(np.float32)},
    ),
    Pair(
        "sizes-of-ten",
        "sizes divisible by ten are doubled",
        Even,
        {"x": "float32[batch, n, 5]"},
        witness=long_x(20, 5),
    ),
    Pair(
        "average-of-280",
        "an average of all steps ends after 280 of them",
        Faded,
        {"x": "float32[batch, seq, 4]"},
        witness=long_x(400, 4),
    ),
]
