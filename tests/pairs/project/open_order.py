"""Order of equals behind topk and sort: PyTorch leaves it open, and no twin may alarm."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class Peaks(Net):
    """Peaks of a heat map as rows and columns, as CenterNet decodes them."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.offset = nn.Conv2d(1, 2, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        heat = torch.sigmoid(self.conv(image))
        rows, columns = 8, 12
        best = heat.flatten(1).topk(5, 1)
        width = rows if self.wrong else columns
        offset = self.offset(image).flatten(2).transpose(1, 2)
        at = best.indices.unsqueeze(-1).expand(-1, -1, 2)
        return (
            best.values,
            best.indices // width,
            best.indices % width,
            offset.gather(1, at),
        )


class Beam(Net):
    """One step of a beam search: tokens, the beams they come from, and those beams' states."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.cell, self.head = nn.Embedding(12, 16), mlp(32, 16), nn.Linear(16, 12)
        if wrong:
            self.head.weight.data[3] += 1.0

    def forward(
        self, token: Tensor, state: Tensor, score: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h = torch.tanh(self.cell(torch.cat([self.embed(token), state], -1)))
        total = score.unsqueeze(-1) + self.head(h).log_softmax(-1)
        best = total.flatten(1).topk(4, 1)
        beam = best.indices // 12
        kept = h.gather(1, beam.unsqueeze(-1).expand(-1, -1, 16))
        return best.indices % 12, beam, kept, best.values


class Prune(Net):
    """Half the tokens are kept, those that the class token attends to most."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.key, self.query, self.ffn = nn.Linear(16, 16), nn.Linear(16, 16), mlp(16, 32, 16)

    def forward(self, x: Tensor) -> Tensor:
        attention = (self.query(x[:, :1]) @ self.key(x[:, 1:]).transpose(1, 2)).squeeze(1)
        at = torch.softmax(attention, -1).topk(6, 1, largest=not self.wrong).indices
        kept = x[:, 1:].gather(1, at.unsqueeze(-1).expand(-1, -1, 16))
        return torch.cat([x[:, :1], kept + self.ffn(kept)], 1)


class Ranking(Net):
    """Documents in the order of their scores, which are grades and often equal."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.title = nn.Embedding(50, 6)

    def forward(self, documents: Tensor, grades: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order = grades.sort(1, descending=not self.wrong)
        at = order.indices.unsqueeze(-1).expand(-1, -1, 6)
        return order.values, order.indices, self.title(documents).gather(1, at)


class Suppress(Net):
    """Fast non-maximum suppression: boxes by score, and which of them are kept."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.limit = 0.3 if wrong else 0.5

    def forward(self, corner: Tensor, size: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        best = score.topk(10)
        low, high = corner[best.indices], (corner + size)[best.indices]
        left = torch.maximum(low.unsqueeze(1), low.unsqueeze(0))
        right = torch.minimum(high.unsqueeze(1), high.unsqueeze(0))
        shared = (right - left).clamp_min(0).prod(-1)
        area = (high - low).prod(-1)
        overlap = shared / (area.unsqueeze(1) + area.unsqueeze(0) - shared)
        kept = overlap.triu(1).amax(0) < self.limit
        return torch.cat([low, high], 1), kept


class Middle(Net):
    """A median filter that says where the median was taken."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv1d(3, 6, 3)
        self.rank = 4 if wrong else 5

    def forward(self, signal: Tensor) -> Tensor:
        frames = self.conv(signal)[:, :, :9]
        return torch.relu(frames).topk(self.rank, -1).values[..., -1]


class Saturated(Net):
    """Many peaks of one height, all of which are as good as equal: an index is any of them."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        if wrong:
            self.conv.bias.data[1] += 0.05

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heat = self.conv(image).sigmoid()
        peaks = heat * (nn.functional.max_pool2d(heat, 3, 1, 1) == heat)
        best = peaks.flatten(1).topk(10)
        return best.values, best.indices // 320, best.indices % 320


class Marks(Net):
    """What has more digits than rounding leaves of it, as whole numbers: the last of them are open."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv1d(3, 8, 5)

    def forward(self, signal: Tensor) -> Tensor:
        mark = self.conv(signal).mean(-1)
        if self.wrong:
            mark = torch.cat([mark[:, :1] + 0.01, mark[:, 1:]], -1)
        for _ in range(6):
            mark = torch.sin(3 * mark)
        return (mark * 1e8).to(torch.int64)


class Nucleus(Net):
    """The words that have nine tenths of the probability together, of words that are often equals."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.share = 0.8 if wrong else 0.9

    def forward(self, logits: Tensor) -> Tensor:
        best, order = logits.softmax(-1).sort(-1, descending=True)
        kept = (best.cumsum(-1) - best) < self.share
        mask = torch.zeros_like(kept).scatter(-1, order, kept)
        return logits.masked_fill(~mask, -1e9).softmax(-1)


PAIRS = [
    Pair(
        "heat-map-peaks",
        "rows and columns of topk by // and %, with the height for the width",
        Peaks,
        {"image": ranged("float32", ["batch", 1, 8, 12], 0, 1)},
    ),
    Pair(
        "beam-search-step",
        "tokens and beams of topk by // and %, over a changed row of weights",
        Beam,
        {
            "token": tokens(["batch", 4], 11),
            "state": "float32[batch, 4, 16]",
            "score": "float32[batch, 4]",
        },
    ),
    Pair(
        "token-pruning",
        "the least attended tokens are kept instead of the most",
        Prune,
        {"x": "float32[batch, 13, 16]"},
    ),
    Pair(
        "graded-documents",
        "sorted the other way round, with payload",
        Ranking,
        {"documents": tokens(["batch", 12], 49), "grades": tokens(["batch", 12], 4)},
    ),
    Pair(
        "box-suppression",
        "another limit of overlap behind a topk by score",
        Suppress,
        {
            "corner": ranged("float32", [24, 2], 0, 50),
            "size": ranged("float32", [24, 2], 10, 40),
            "score": ranged("float32", [24], 0, 1),
        },
    ),
    Pair(
        "median-filter",
        "the fourth largest for the fifth",
        Middle,
        {"signal": "float32[batch, 3, 11]"},
    ),
    Pair(
        "saturated-peaks",
        "rows and columns of topk over saturated scores; one channel has another bias",
        Saturated,
        {"image": "float32[batch, 3, 16, 20]"},
    ),
    Pair(
        "whole-numbers-of-noise",
        "whole numbers of more digits than rounding leaves; one channel is moved on",
        Marks,
        {"signal": "float32[batch, 3, 40]"},
    ),
    Pair(
        "nucleus-of-equals",
        "the nucleus of words that may all be equal, with eight tenths for nine",
        Nucleus,
        {"logits": "float32[4, 40]"},
    ),
]
