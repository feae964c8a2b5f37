"""What changes only after more calls in a row than the manifest asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn


class Ring(Net):
    """The last 48 frames, of which the oldest is written over; the file goes on to write to others."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.places = nn.Linear(6, 6), 64 if wrong else 48

    def forward(self, frame: Tensor, kept: Tensor, position: Tensor) -> dict[str, Tensor]:
        made = torch.tanh(self.fc(frame))
        at = (position % self.places).view(-1, 1, 1) == torch.arange(48).view(1, 48, 1)
        kept = torch.where(at, made.unsqueeze(1), kept)
        return {"next": made + kept.mean(1), "now": kept}


class Ages(Net):
    """A mean over all steps; the file counts to 30."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(6, 6)

    def forward(self, frame: Tensor, mean: Tensor, age: Tensor) -> dict[str, Tensor]:
        age = age + 1
        share = 1 / (age.clamp(max=30) if self.wrong else age)
        mean = mean + share.unsqueeze(1) * (self.fc(frame) - mean)
        return {"average": mean, "older": age}


def _late(rng: np.random.Generator) -> dict[str, Any]:
    draw = {"frame": (3, 6), "kept": (3, 48, 6)}
    return {
        **{name: rng.standard_normal(shape, np.float32) for name, shape in draw.items()},
        "position": np.array([48, 50, 60]),
    }


def _old(rng: np.random.Generator) -> dict[str, Any]:
    draw = {name: rng.standard_normal((3, 6), np.float32) for name in ("frame", "mean")}
    return {**draw, "age": np.array([30, 40, 60], np.float32)}


PAIRS = [
    Pair(
        "ring-of-48",
        "a ring of 48 places is read as one of 64",
        Ring,
        {
            "frame": "float32[batch, 6]",
            "kept": "float32[batch, 48, 6]",
            "position": {"dtype": "int64", "shape": ["batch"], "range": [0, 0]},
        },
        entry={
            "steps": {
                "count": 16,
                "carry": {"kept": "now"},
                "feed": {"frame": "next", "position": "position + 1"},
            }
        },
        witness=_late,
    ),
    Pair(
        "counts-to-30",
        "a mean over all steps forgets what is more than 30 steps ago",
        Ages,
        {
            "frame": "float32[batch, 6]",
            "mean": "float32[batch, 6]",
            "age": ranged("float32", ["batch"], 0, 1),
        },
        entry={"steps": {"count": 12, "carry": {"mean": "average", "age": "older"}}},
        witness=_old,
    ),
]
