"""Guards that every tested size keeps and a prime breaks: the example has to keep them too."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, tokens
from torch import Tensor, nn
from torch.nn import functional as F


class PadToEight(Net):
    """Frames are padded to a multiple of eight; the tested sizes need none."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv1d(4, 16, 8, stride=8), nn.Linear(16, 3)
        if wrong:
            self.head.bias.data += 0.1

    def forward(self, signal: Tensor) -> Tensor:
        missing = -signal.shape[2] % 8
        if missing != 0:
            signal = F.pad(signal, (missing, 0), value=1.0)
        return self.head(torch.relu(self.conv(signal)).mean(2))


class Chunks(Net):
    """Four frames at a time become one."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.join = mlp(4 * 6, 32, 5)
        if wrong:
            self.join[0].weight.data = self.join[0].weight.data.roll(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x.reshape(x.shape[0], x.shape[1] // 4, 24))


class Chunked(Net):
    """Short texts are taken whole, long ones by their last 32 tokens."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(30, 16), nn.Linear(16, 4)
        self.last = 31 if wrong else 32

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        if ids.shape[1] <= 32:
            return self.head(h.mean(1))
        return self.head(h[:, -self.last :].amax(1))


class EvenImage(Net):
    """Odd images are cropped by a row; the tested ones are even."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.down, self.up = nn.Conv2d(3, 8, 2, 2), nn.ConvTranspose2d(8, 1, 2, 2)
        if wrong:
            self.up.weight.data = self.up.weight.data.flip(3)

    def forward(self, image: Tensor) -> Tensor:
        if image.shape[2] % 2 == 1:
            image = image[:, :, 1:]
        return self.up(torch.relu(self.down(image)))


PAIRS = [
    Pair(
        "padded-to-eight",
        "`if T % 8`; the file's last bias shifted",
        PadToEight,
        {"signal": "float32[batch, 4, time]"},
        entry={"dims": {"time": [16, 64, 160]}},
        example={"time": 48},
    ),
    Pair(
        "four-frames-at-a-time",
        "`T // 4`; the file's frames rolled",
        Chunks,
        {"x": "float32[batch, time, 6]"},
        entry={"dims": {"time": [4, 8, 40]}},
        example={"time": 12},
    ),
    Pair(
        "long-branch-only",
        "`if seq <= 32`, only longer ones are tested; the file drops a token",
        Chunked,
        {"ids": tokens(["batch", "seq"], 29)},
        entry={"dims": {"seq": [48, 64, 100]}},
        example={"seq": 60},
    ),
    Pair(
        "even-images",
        "`if height % 2`; the file's kernel flipped",
        EvenImage,
        {"image": "float32[batch, 3, height, 16]"},
        entry={"dims": {"height": [8, 16, 32]}},
        example={"height": 12},
    ),
]
