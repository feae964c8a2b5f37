"""Branches on sizes that few sizes take: all equal, larger ones, realistic ones."""

from __future__ import annotations

import math

import numpy as np
import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn
from torch.nn import functional as F


def number(size: int) -> Tensor:
    """A size as a tensor, so that a condition on it stays in the graph."""
    return torch.scalar_tensor(size, dtype=torch.int64)


class Square(Net):
    """Pooling that treats square images otherwise: `if h == w`."""

    baked = False

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)

    def features(self, image: Tensor) -> Tensor:
        return torch.relu(self.conv(image)).mean((2, 3))

    def forward(self, image: Tensor) -> Tensor:
        gain = 2.0 if image.shape[2] == image.shape[3] else 1.0
        return self.head(self.features(image) * gain)


class SquareFile(Square):
    """The same with the condition in the graph, or with the branch of an oblong example."""

    def forward(self, image: Tensor) -> Tensor:
        if self.wrong:
            return self.head(self.features(image))
        same = number(image.shape[2]) == number(image.shape[3])
        return self.head(self.features(image) * torch.where(same, 2.0, 1.0))


class Matching(Net):
    """Two sets of points; sets of the same size are taken to be matched, row by row."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.f, self.g = mlp(4, 16, 8), mlp(4, 16, 8)

    def score(self, a: Tensor, b: Tensor, same: Tensor | bool) -> Tensor:
        cross = (self.f(a) @ self.g(b).transpose(1, 2)).mean((1, 2))
        return torch.where(torch.as_tensor(same), cross * 0.5, cross)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.score(a, b, a.shape[1] == b.shape[1])


class MatchingFile(Matching):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.score(a, b, False if self.wrong else number(a.shape[1]) == number(b.shape[1]))


class LongText(Net):
    """Logits are cooled where the text is longer than the training's 16 tokens."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(30, 16), mlp(16, 32, 30)

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.head(self.embed(ids))
        if ids.shape[1] > 16:
            logits = logits * (16 / ids.shape[1]) ** 0.5
        return logits


class LongTextFile(LongText):
    def forward(self, ids: Tensor) -> Tensor:
        logits = self.head(self.embed(ids))
        n = number(ids.shape[1])
        cooled = logits * (16 / n.to(torch.float32)).sqrt()
        return logits if self.wrong else torch.where(n > 16, cooled, logits)


class Buckets(Net):
    """Relative positions in buckets, as in T5: exact up to 8, then logarithmic."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.bias = nn.Embedding(40, 32), nn.Embedding(16, 4)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 10)
        nn.init.normal_(self.bias.weight, std=2.0)

    def buckets(self, n: int) -> Tensor:
        at = torch.arange(n)
        distance = (at.unsqueeze(1) - at).abs()
        if self.wrong:
            return distance.clamp_max(8)
        ratio = torch.log(distance.clamp_min(1).float() / 8) / math.log(16)
        return torch.where(distance < 8, distance, (8 + (ratio * 8).long()).clamp_max(15))

    def forward(self, ids: Tensor) -> Tensor:
        b, n = ids.shape
        q, k, v = self.qkv(self.embed(ids)).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias(self.buckets(n)).permute(2, 0, 1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, 32))


class Window(Net):
    """Attention to the last twelve positions only."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        gap = at.unsqueeze(1) - at
        seen = gap >= 0 if self.wrong else (gap >= 0) & (gap < 12)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 4
        return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ self.v(x)


class Loudness(Net):
    """A filter bank over audio; the file takes the first 64 samples only."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.bank, self.head = nn.Conv1d(1, 12, 64), nn.Linear(12, 3)

    def forward(self, audio: Tensor) -> Tensor:
        sound = F.pad(audio.unsqueeze(1), (63, 0))
        if self.wrong:
            sound = sound[:, :, :127]
        return self.head(torch.relu(self.bank(sound)).amax(2))


class Thumbnail(Net):
    """Features of an image, at most 32 rows and columns of which are looked at."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6, 5)
        self.limit = 24 if wrong else 10**6

    def forward(self, image: Tensor) -> Tensor:
        seen = image[:, :, : self.limit, : self.limit]
        return self.head(torch.tanh(self.conv(seen)).mean((2, 3)))


class Clock(Net):
    """Sinusoids of positions; the file's table has sixteen rows and starts anew."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = mlp(24, 32, 4)
        table = torch.arange(64).unsqueeze(1) / 100 ** (torch.arange(8) / 8)
        self.register_buffer("table", torch.cat([table.sin(), table.cos()], 1))

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        position = self.table[at % 16 if self.wrong else at.clamp_max(63)]
        return self.head(torch.cat([x, position.expand(x.shape[0], -1, -1)], -1))


class Single(Net):
    """One row is scored as it is, several are ranked against their mean: `if batch == 1`."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(6, 24, 2)

    def forward(self, row: Tensor) -> Tensor:
        y = self.body(row)
        return y if row.shape[0] == 1 else y - y.mean(0)


class SingleFile(Single):
    def forward(self, row: Tensor) -> Tensor:
        y = self.body(row)
        centred = y - y.mean(0)
        return centred if self.wrong else torch.where(number(row.shape[0]) == 1, y, centred)


def square_images(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"image": rng.standard_normal((2, 3, 12, 12), np.float32)}


def equal_sets(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "a": rng.standard_normal((2, 6, 4), np.float32),
        "b": rng.standard_normal((2, 6, 4), np.float32),
    }


def long_text(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"ids": rng.integers(0, 30, (2, 40))}


def long_x(width: int) -> object:
    return lambda rng: {"x": rng.standard_normal((2, 40, width), np.float32)}


def one_row(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"row": rng.standard_normal((1, 6), np.float32)}


def audio(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"audio": rng.standard_normal((2, 400), np.float32)}


def image(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"image": rng.uniform(0, 1, (2, 3, 40, 48)).astype(np.float32)}


PAIRS = [
    Pair(
        "square-images",
        "`if h == w`, the file has the branch of an oblong example",
        Square,
        {"image": "float32[batch, 3, h, w]"},
        faulty=lambda: SquareFile(wrong=True),
        twin=SquareFile,
        witness=square_images,
    ),
    Pair(
        "square-images-exported",
        "`if h == w`, exported by the gate: no example can take both branches",
        Square,
        {"image": "float32[batch, 3, h, w]"},
        gate_exports_fault=True,
        twin=SquareFile,
    ),
    Pair(
        "equal-sets",
        "`if n == m` of two sets of points",
        Matching,
        {"a": "float32[batch, n, 4]", "b": "float32[batch, m, 4]"},
        faulty=lambda: MatchingFile(wrong=True),
        twin=MatchingFile,
        witness=equal_sets,
    ),
    Pair(
        "more-than-sixteen-tokens",
        "`if seq > 16`, the file has the branch of a short example",
        LongText,
        {"ids": tokens(["batch", "seq"], 29)},
        faulty=lambda: LongTextFile(wrong=True),
        twin=LongTextFile,
        witness=long_text,
    ),
    Pair(
        "relative-position-buckets",
        "every distance of 8 and more in one bucket",
        Buckets,
        {"ids": tokens(["batch", "seq"], 39)},
        witness=long_text,
    ),
    Pair(
        "sliding-window",
        "a window of twelve positions is not kept",
        Window,
        {"x": "float32[batch, seq, 16]"},
        witness=long_x(16),
    ),
    Pair(
        "first-samples-only",
        "the file hears the first 64 samples",
        Loudness,
        {"audio": "float32[batch, samples]"},
        witness=audio,
    ),
    Pair(
        "corner-of-the-image",
        "the file sees the first 24 rows and columns",
        Thumbnail,
        {"image": ranged("float32", ["batch", 3, "height", "width"], 0, 1)},
        witness=image,
    ),
    Pair(
        "position-table",
        "a table of positions that starts anew after sixteen",
        Clock,
        {"x": "float32[batch, frames, 8]"},
        witness=long_x(8),
    ),
    Pair(
        "batch-of-one",
        "`if batch == 1`, the file has the branch of several",
        Single,
        {"row": "float32[batch, 6]"},
        faulty=lambda: SingleFile(wrong=True),
        twin=SingleFile,
        witness=one_row,
    ),
]
