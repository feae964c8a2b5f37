"""Sizes and other Python numbers among the outputs are scalars on both sides."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class WithSize(Net):
    """Features of an image, and the rows and columns of the feature map."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(3, 6, 3, stride=2, padding=1)

    def forward(self, image: Tensor) -> tuple[Tensor, int, int]:
        y = torch.relu(self.conv(image))
        h, w = y.shape[2], y.shape[3]
        return (y, w, h) if self.wrong else (y, h, w)


class WithLength(Net):
    """Scores and how many there are."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(20, 8), mlp(8, 16, 2)

    def forward(self, ids: Tensor) -> dict[str, Tensor | int]:
        n = ids.shape[1]
        return {"scores": self.head(self.embed(ids)), "count": n + 1 if self.wrong else n}


PAIRS = [
    Pair(
        "map-size",
        "`return y, h, w`; the file has them the other way round",
        WithSize,
        {"image": ranged("float32", ["batch", 3, "height", "width"], 0, 1)},
        entry={"dims": {"height": [8, 12], "width": [16, 20]}},
    ),
    Pair(
        "count-beside-scores",
        "a count among the outputs; the file's is one too large",
        WithLength,
        {"ids": tokens(["batch", "seq"], 19)},
    ),
]
