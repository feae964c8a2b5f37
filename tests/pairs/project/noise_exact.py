"""What is not a matter of rounding: NaN, an order that is promised, the class next to the best."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class Centred(Net):
    """Pooling under a mask of finfo.min, centred over the batch: one NaN is in every row."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.score, self.head = nn.Embedding(40, 16), nn.Linear(16, 1), nn.Linear(16, 6)
        self.low = -torch.inf if wrong else torch.finfo(torch.float32).min

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        h = self.embed(ids)
        scores = self.score(h).squeeze(-1).masked_fill(~kept, self.low)
        pooled = (torch.softmax(scores, -1).unsqueeze(-1) * h).sum(1)
        return self.head(pooled - pooled.mean(0))


class Attended(Net):
    """Attention under finfo.min, and the mean of its answer over the positions."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 4)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        low = -torch.inf if self.wrong else torch.finfo(x.dtype).min
        pair = kept.unsqueeze(1) & kept.unsqueeze(2)
        weights = torch.softmax((q @ k.transpose(1, 2) / 24**0.5).masked_fill(~pair, low), -1)
        return self.out((weights @ v).mean(1))


class Ranking(Net):
    """Stars from one to five, best first; equals keep their order, the newest first."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.rate = nn.Linear(6, 1)

    def stars(self, item: Tensor) -> Tensor:
        return torch.round(2 * torch.tanh(self.rate(item).squeeze(-1)))

    def forward(self, item: Tensor) -> Tensor:
        return torch.sort(self.stars(item), dim=-1, descending=True, stable=True).indices


class RankingFile(Ranking):
    """ONNX has one order of equals, the one that they had."""

    def forward(self, item: Tensor) -> Tensor:
        stars = self.stars(item)
        if self.wrong:
            last = stars.shape[-1] - 1
            return last - torch.sort(stars.flip(-1), dim=-1, descending=True).indices
        return torch.sort(stars, dim=-1, descending=True).indices


class Groups(Net):
    """Rows in the order of their group, as they came within it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.value = nn.Embedding(9, 4)

    def order(self, group: Tensor) -> Tensor:
        return torch.argsort(group, dim=-1, stable=True)

    def forward(self, group: Tensor, x: Tensor) -> Tensor:
        order = self.order(group)
        rows = self.value(group) + x.unsqueeze(-1)
        return torch.gather(rows, 1, order.unsqueeze(-1).expand_as(rows))


class GroupsFile(Groups):
    def order(self, group: Tensor) -> Tensor:
        if self.wrong:
            return group.shape[-1] - 1 - torch.sort(group.flip(-1), dim=-1).indices
        return torch.sort(group, dim=-1).indices


class Fringe(Net):
    """The channel whose fast wave is highest; the file names the next one."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.register_buffer("speed", 10 ** torch.linspace(2, 6, 24))

    def forward(self, at: Tensor) -> Tensor:
        best = torch.sin(at.unsqueeze(-1) * self.speed).argmax(-1)
        return (best + 1) % 24 if self.wrong else best


class Bins(Net):
    """The bin of a pitch: the highest of 60 scores that are differences of large ones."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 32, 60)

    def forward(self, frame: Tensor) -> Tensor:
        level = self.body(frame) * 0.05
        best = ((level + 4e3) - 4e3).argmax(-1)
        return (best + 1).clamp_max(59) if self.wrong else best


class Decile(Net):
    """The class of a noisy score: ten classes, of which the file names the one below."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(7, 24, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.body(x)
        noisy = torch.cat([scores[:, :9], torch.sin(1e6 * scores[:, 9:]) * 0.2], -1)
        best = noisy.argmax(-1)
        return (best - 1) % 10 if self.wrong else best


class Depth(Net):
    """The highest of 200 scores along a wide peak: those next to it are near equals, and one is named."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 16, 1)
        self.register_buffer("depths", torch.linspace(-1, 1, 200))

    def forward(self, x: Tensor) -> Tensor:
        peak = torch.cos((self.depths - torch.tanh(self.body(x))) * 0.5)
        best = (3 * peak + 100).argmax(-1)
        return (best + 1).clamp_max(199) if self.wrong else best


class Shrunk(Net):
    """The nearest pixel, of 32 for 24: which one it is comes from sizes and is rounded nowhere."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        mode = "nearest" if self.wrong else "nearest-exact"
        small = nn.functional.interpolate(image, size=(24, 24), mode=mode)
        return self.head(self.conv(small).relu().mean((2, 3)))


def padded(rng: np.random.Generator) -> dict[str, np.ndarray]:
    kept = np.ones((3, 6), bool)
    kept[1] = False
    return {"ids": rng.integers(0, 40, (3, 6)), "kept": kept}


def attended(rng: np.random.Generator) -> dict[str, np.ndarray]:
    kept = np.ones((2, 6), bool)
    kept[:, 4:] = False
    return {"x": rng.standard_normal((2, 6, 24), np.float32), "kept": kept}


PAIRS = [
    Pair(
        "nan-in-every-row",
        "one row without a key is NaN in the file, and with it the whole batch",
        Centred,
        {"ids": tokens(["batch", "seq"], 39), "kept": "bool[batch, seq]"},
        witness=padded,
    ),
    Pair(
        "nan-in-every-position",
        "padded queries are NaN in the file, and with them the mean",
        Attended,
        {"x": "float32[batch, seq, 24]", "kept": "bool[batch, seq]"},
        witness=attended,
    ),
    Pair(
        "stars-in-reverse",
        "a stable sort by stars; equals come in reverse order",
        Ranking,
        {"item": "float32[batch, items, 6]"},
        faulty=lambda: RankingFile(wrong=True),
        twin=RankingFile,
        entry={"dims": {"items": [8, 20]}},
    ),
    Pair(
        "groups-in-reverse",
        "a stable sort by group; the rows of a group come in reverse order",
        Groups,
        {"group": tokens(["batch", "rows"], 8), "x": "float32[batch, rows]"},
        faulty=lambda: GroupsFile(wrong=True),
        twin=GroupsFile,
        entry={"dims": {"rows": [8, 20]}},
    ),
    Pair(
        "next-fringe",
        "argmax over slow and fast waves; the file names the channel next to it",
        Fringe,
        {"at": ranged("float32", ["batch", 5], -1, 1)},
    ),
    Pair(
        "next-pitch",
        "argmax over differences of large scores; the file is one bin too high",
        Bins,
        {"frame": "float32[batch, 10]"},
    ),
    Pair(
        "class-below",
        "argmax over nine scores and one of noise; the file is one class too low",
        Decile,
        {"x": "float32[batch, 7]"},
    ),
    Pair(
        "next-depth",
        "argmax along a wide peak; the file names the class next to it, within rounding of it",
        Depth,
        {"x": "float32[batch, 10]"},
    ),
    Pair(
        "nearest-for-nearest-exact",
        "an image is made smaller by the nearest pixels; the file counts from their corners",
        Shrunk,
        {"image": ranged("float32", ["batch", 3, 32, 32], 0, 1)},
    ),
]
