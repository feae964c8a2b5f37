"""Manifests under which nothing is compared, or not what they name: green would be a lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class LogPower(Net):
    """Decibels, normalised over the band: NaN everywhere as soon as one power is negative."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.norm, self.head = nn.LayerNorm(32), mlp(32, 16, 4)
        if wrong:
            self.head[0].weight.data *= -1

    def forward(self, power: Tensor) -> Tensor:
        return self.head(self.norm(10 * torch.log10(power)))


class Threshold(Net):
    """A detector that says only what it is sure of."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.trunk, self.box, self.score = mlp(8, 24, 16), nn.Linear(16, 4), nn.Linear(8, 1)
        self.score.weight.data.fill_(0.2)
        self.score.bias.data.fill_(-9.0)
        if wrong:
            self.box.weight.data *= 2

    def forward(self, anchors: Tensor) -> Tensor:
        score = torch.sigmoid(self.score(anchors)).squeeze(-1)
        return self.box(self.trunk(anchors))[score > 0.5]


class Boiler(Net):
    """A controller that answers only where the temperature, in degrees, calls for it."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.gain = nn.Parameter(torch.rand(6))
        if wrong:
            self.gain.data = self.gain.data.flip(0)

    def forward(self, degrees: Tensor) -> Tensor:
        return torch.relu(degrees - 90.0) * self.gain


class Tabular(Net):
    """A table's row to three scores."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 24, 3)
        if wrong:
            self.body[2].bias.data += 0.5

    def forward(self, row: Tensor) -> Tensor:
        return self.body(row)


class Outdoor(Net):
    """A thermometer's correction, the sensor clipped at 80 degrees; the file clips at 50."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.top = mlp(4, 16, 2), 50.0 if wrong else 80.0

    def forward(self, degrees: Tensor) -> Tensor:
        return self.body(degrees.clamp(-40.0, self.top) / 40)


class PairsOfFrames(Net):
    """Stereo: the two images of a pair lie one behind the other in the batch."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(6, 8, 3), nn.Linear(8, 2)

    def forward(self, frames: Tensor) -> Tensor:
        stacked = frames.reshape(-1, 6, frames.shape[2], frames.shape[3])
        return self.head(torch.relu(self.conv(stacked)).mean((2, 3)))


class TwoAnswers(Net):
    """A mean and a deviation; the deviation is a root, and NaN where its argument is negative."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.mean, self.spread = nn.Linear(7, 5), nn.Linear(7, 5)
        self.spread.weight.data.abs_()
        self.spread.bias.data.fill_(0.0)
        if wrong:
            self.spread.weight.data *= 1.2

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        variance = self.spread(x) - 6.0
        return self.mean(x), variance.sqrt()


class Vocabulary(Net):
    """An embedding of 1,000 words, and a manifest that promises 2,000."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(1000, 16), nn.Linear(16, 4)
        if wrong:
            self.embed.weight.data[1:] *= 1.5

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


class Confident(Net):
    """A classifier whose random answer is always the same class."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(6, 16, 5)
        self.body[2].bias.data[3] = 40.0
        if wrong:
            self.body[2].weight.data *= -1

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).argmax(-1)


class Refusing(Net):
    """A patch embedding that wants multiples of eight and says so."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.patch, self.head = nn.Linear(8 * 4, 16), nn.Linear(16, 3)

    def forward(self, signal: Tensor) -> Tensor:
        patches = signal.reshape(signal.shape[0], -1, 8 * 4)
        return self.head(torch.relu(self.patch(patches))).mean(1)


def sure(inputs: Any, seed: int) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    for n in (1, 4, 9):
        yield {"anchors": rng.normal(6.0, 3.0, (n, 8)).astype(np.float32)}


def nobody(inputs: Any, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Readings of the hot days, of which there are none since somebody moved the list."""
    for day in ():
        yield {"degrees": np.full((3, 4), day, np.float32)}


def hot(inputs: Any, seed: int) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    for _ in range(2):
        yield {"degrees": rng.uniform(40, 80, (3, 4)).astype(np.float32)}


def hot_witness(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"degrees": rng.uniform(60, 80, (3, 4)).astype(np.float32)}


def sure_witness(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"anchors": rng.normal(8.0, 3.0, (9, 8)).astype(np.float32)}


def warm_witness(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"degrees": rng.uniform(80, 140, (3, 6)).astype(np.float32)}


def power_witness(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"power": rng.uniform(0.1, 10, (3, 32)).astype(np.float32)}


def positive_witness(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.uniform(8, 20, (3, 7)).astype(np.float32)}


def rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"row": rng.standard_normal((3, 10), np.float32)}


def even(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"frames": rng.standard_normal((4, 3, 8, 8), np.float32)}


def varied_choice(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.normal(0, 400, (64, 6)).astype(np.float32)}


PAIRS = [
    Pair(
        "all-nan",
        "NaN on both sides everywhere, other weights",
        LogPower,
        {"power": "float32[batch, 32]"},
        expect="unverified",
        twin_entry={"inputs": {"power": ranged("float32", ["batch", 32], 0.1, 10)}},
        witness=power_witness,
    ),
    Pair(
        "empty-detections",
        "random inputs detect nothing, boxes twice too large",
        Threshold,
        {"anchors": "float32[n, 8]"},
        expect="unverified",
        suites={"sure": {"generator": "nothing_compared.py:sure"}},
        twin_entry={"suites": ["sure"]},
        witness=sure_witness,
    ),
    Pair(
        "always-zero",
        "a ReLU that is never above zero, other weights",
        Boiler,
        {"degrees": "float32[batch, 6]"},
        expect="remarked",
        twin_entry={"inputs": {"degrees": ranged("float32", ["batch", 6], 80, 140)}},
        witness=warm_witness,
    ),
    Pair(
        "only-size-zero",
        "the only size that is named is 0, other weights",
        Tabular,
        {"row": "float32[batch, 10]"},
        expect="unverified",
        faulty_entry={"dims": {"batch": [0]}},
        twin_entry={"dims": {"batch": [0, 1, 4]}},
        witness=rows,
    ),
    Pair(
        "generator-yields-nothing",
        "a named suite without a case, wrong on what it should have held",
        Outdoor,
        {"degrees": ranged("float32", ["batch", 4], -40, 45)},
        expect="unverified",
        suites={
            "hot_days_lost": {"generator": "nothing_compared.py:nobody"},
            "hot_days": {"generator": "nothing_compared.py:hot"},
        },
        faulty_entry={"suites": ["typical", "hot_days_lost"]},
        twin_entry={"suites": ["typical", "hot_days"]},
        witness=hot_witness,
    ),
    Pair(
        "edges-do-not-apply",
        "named edges that no input can hold",
        Tabular,
        {"row": ranged("float32", ["batch", 10], 0, 1)},
        expect="unverified",
        same_file=True,
        suites={"below": {"edges": ["negative"]}, "ends": {"edges": ["bounds", "zeros"]}},
        faulty_entry={"suites": ["typical", "below"]},
        twin_entry={"suites": ["typical", "ends"]},
    ),
    Pair(
        "only-edges-do-not-apply",
        "the only suite has edges that no input can hold, other weights",
        Tabular,
        {"row": ranged("float32", ["batch", 10], 0, 1)},
        expect="unverified",
        suites={"only_below": {"edges": ["negative"]}},
        faulty_entry={"suites": ["only_below"]},
        witness=rows,
    ),
    Pair(
        "commonest-batch-refused",
        "batch 1 is declared and refused by both sides",
        PairsOfFrames,
        {"frames": "float32[batch, 3, 8, 8]"},
        expect="unverified",
        same_file=True,
        faulty_entry={"dims": {"batch": [1, 2, 8]}},
        twin_entry={"dims": {"batch": [2, 4, 8]}},
        example={"batch": 4},
        witness=even,
    ),
    Pair(
        "declared-lengths-refused",
        "two of four declared lengths are refused by both sides",
        Refusing,
        {"signal": "float32[batch, time, 4]"},
        expect="unverified",
        same_file=True,
        faulty_entry={"dims": {"time": [8, 12, 20, 32]}},
        twin_entry={"dims": {"time": [8, 16, 24, 32]}},
        example={"time": 24},
    ),
    Pair(
        "one-output-nan",
        "one of two outputs is NaN on both sides, and 10 % off where it is not",
        TwoAnswers,
        {"x": ranged("float32", ["batch", 7], -1, 1)},
        expect="unverified",
        twin_entry={"inputs": {"x": ranged("float32", ["batch", 7], 8, 20)}},
        witness=positive_witness,
    ),
    Pair(
        "out-of-vocabulary",
        "half the range is refused by both sides, and with it most cases; other weights",
        Vocabulary,
        {"ids": tokens(["batch", "seq"], 999)},
        expect="unverified",
        faulty_entry={"inputs": {"ids": tokens(["batch", "seq"], 1999)}},
    ),
    Pair(
        "always-one-class",
        "argmax never varies, other weights",
        Confident,
        {"x": "float32[batch, 6]"},
        expect="remarked",
        twin_entry={"inputs": {"x": ranged("float32", ["batch", 6], -2000, 2000)}},
        witness=varied_choice,
    ),
]
