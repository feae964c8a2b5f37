"""Where a quotient changes or a limit lies behind arithmetic of integer inputs: dates, tiles, bytes."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn
from torch.nn import functional as F


class YearOfDay(Net):
    """The year of a day counted from 1 March of the year 0; a cycle is a day short in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.cycle = 146096 if wrong else 146097
        self.fc = nn.Linear(2, 3)

    def forward(self, day: Tensor) -> Tensor:
        cycle = (day * 4 + 3) // self.cycle
        rest = day - (cycle * 146097) // 4
        return self.fc(torch.stack([cycle, rest // 366], -1).float() / 100)


class Julian(Net):
    """The number of a Julian century; in the file it is a day short."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.century = 36524 if wrong else 36525
        self.fc = nn.Linear(1, 3)

    def forward(self, day: Tensor) -> Tensor:
        return self.fc((day // self.century).float().unsqueeze(-1) / 50)


class YearOfEra(Net):
    """The year within 400 by the days of a cycle; its last day is not corrected in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.last = 146097 if wrong else 146096
        self.fc = nn.Linear(1, 3)

    def forward(self, day: Tensor) -> Tensor:
        rest = day - (day // 146097) * 146097
        year = (rest - rest // 1460 + rest // 36524 - rest // self.last) // 365
        return self.fc(year.float().unsqueeze(-1) / 400)


class Midnight(Net):
    """The day and the second of a time stamp in another zone; days are a second longer in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.day = 86401 if wrong else 86400
        self.fc = nn.Linear(1, 3)

    def forward(self, stamp: Tensor) -> Tensor:
        local = stamp - 18000
        return self.fc((local // self.day).float().unsqueeze(-1))


class TileOf(Net):
    """Tiles of a map by whole coordinates in half units; a tile is a little smaller in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.side = 65535 if wrong else 65536
        self.embed = nn.Embedding(32 * 32, 3)

    def forward(self, place: Tensor) -> Tensor:
        tile = torch.div(place * 2 + 1, self.side, rounding_mode="floor")
        return self.embed(tile[:, 0] * 32 + tile[:, 1])


class Wrapped(Net):
    """Buckets of an id by a remainder after a shift; the file has the modulus one off."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.modulus = 1999994 if wrong else 1999993
        self.fc = nn.Linear(1, 3)

    def forward(self, number: Tensor) -> Tensor:
        return self.fc((((number * 3 + 16) % self.modulus) // 400000).float().unsqueeze(-1))


class Bands(Net):
    """Bands of income in cents from whole thousands; one bound is a little higher in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        bounds = torch.tensor([100_000, 1_250_000, 4_000_000, 7_500_000])
        bounds[2] += 100 * wrong
        self.register_buffer("bounds", bounds)
        self.embed = nn.Embedding(5, 3)

    def forward(self, euros: Tensor) -> Tensor:
        return self.embed(torch.bucketize(euros * 100, self.bounds, right=True))


class Grid(Net):
    """Cells of a grid of metres; the file's cells are a centimetre narrower."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.cell = 199.99 if wrong else 200.0
        self.embed = nn.Embedding(6, 3)

    def forward(self, metres: Tensor) -> Tensor:
        return self.embed(torch.floor((metres + 40.0) / self.cell).long())


class StemClip(Net):
    """Bytes through a first layer that saturates at 6; in the file at 5.9."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.high = nn.Conv2d(3, 8, 3, padding=1), 5.9 if wrong else 6.0
        self.conv.weight.data.mul_(1.1)
        self.fc = nn.Linear(8, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = (image.float() / 255 - 0.45) / 0.22
        x = torch.clamp(self.conv(x), 0.0, self.high)
        return self.fc(x.amax((2, 3)))


class Exposure(Net):
    """The sum of differences of bytes to a dark frame, cut at 60; at 59 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.high = 59.0 if wrong else 60.0
        self.mean = nn.Conv2d(1, 4, 7, bias=False)
        self.mean.weight.data.uniform_(-0.043, 0.043)
        self.fc = nn.Linear(4, 3)

    def forward(self, frame: Tensor) -> Tensor:
        light = self.mean((frame.float() - 128) / 2)
        return self.fc(F.hardtanh(light, -self.high, self.high).amax((2, 3)) / 60)


def whole(high: int, *shape: int | str, low: int = 0, dtype: str = "int64") -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "range": [low, high]}


def at(**values: object):
    return lambda rng: {name: np.asarray(value, np.int64) for name, value in values.items()}


def bytes_for(name: str, layer: nn.Conv2d, size: int):
    """Images that make each channel of a first layer as large as it can be."""
    signs = (255 * (layer.weight.detach() > 0)).byte().numpy()
    images = np.zeros((*signs.shape[:2], size, size), np.uint8)
    images[:, :, 1 : signs.shape[2] + 1, 1 : signs.shape[3] + 1] = signs
    return lambda rng: {name: images}


PAIRS = [
    Pair(
        "calendar-cycle",
        "400 years are a day short: the year is another one at 26 of 1.9 million days",
        YearOfDay,
        {"day": whole(3_800_000, "batch")},
        witness=at(day=[104 * 146097 // 4 - 1, 103 * 146097 // 4 - 1, 5]),
    ),
    Pair(
        "calendar-century",
        "a Julian century of 36,524 days",
        Julian,
        {"day": whole(300_000, "batch")},
        witness=at(day=[8 * 36525 - 1, 7 * 36525 - 3]),
    ),
    Pair(
        "calendar-last-day",
        "the last day of 400 years is one of the next year: 26 of 3.8 million days",
        YearOfEra,
        {"day": whole(3_800_000, "batch", low=-400_000)},
        witness=at(day=[146097 - 1, 3 * 146097 - 1]),
    ),
    Pair(
        "midnight",
        "days of 86,401 seconds: ten seconds of two weeks",
        Midnight,
        {"stamp": whole(600_000, "batch")},
        witness=at(stamp=[18000 + 6 * 86400, 18000 + 5 * 86400 + 2]),
    ),
    Pair(
        "tile-index",
        "tiles of 65,535 half units: another tile at their borders",
        TileOf,
        {"place": whole(400_000, "batch", 2)},
        witness=at(place=[[11 * 32768 - 1, 0], [0, 12 * 32768 - 2]]),
    ),
    Pair(
        "hash-modulus",
        "a modulus one too large: another bucket for one id in a million",
        Wrapped,
        {"number": whole(1_200_000, "batch")},
        witness=at(number=[666659, 5]),
    ),
    Pair(
        "band-of-income",
        "a bound in cents is a euro higher",
        Bands,
        {"euros": whole(100_000, "batch")},
        witness=at(euros=[40_000, 39_999]),
    ),
    Pair(
        "grid-cell",
        "cells of a grid a centimetre narrower than 200 m",
        Grid,
        {"metres": ranged("float32", ["batch"], 0, 1000)},
        witness=lambda rng: {"metres": np.float32([959.965, 759.97])},
    ),
    Pair(
        "byte-stem-clip",
        "bytes behind a first layer, cut at 5.9 and not at 6",
        StemClip,
        {"image": whole(255, "batch", 3, 12, 12, dtype="uint8")},
        witness=bytes_for("image", StemClip().conv, 12),
    ),
    Pair(
        "byte-exposure",
        "bytes less a dark frame, summed and cut at 59 and not at 60",
        Exposure,
        {"frame": whole(255, "batch", 1, 9, 9, dtype="uint8")},
        witness=bytes_for("frame", Exposure().mean, 9),
    ),
]
