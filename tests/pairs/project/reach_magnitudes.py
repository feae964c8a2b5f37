"""Magnitudes: another eps, overflows, clips, masks that leak, the dark end of a curve."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn

SIGNS = torch.tensor([1.0, -1, 1, -1, 1, -1, 1, -1])


class Whitened(Net):
    """Rows by their standard deviation; another eps, which nearly constant rows show."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.eps, self.fc = 1e-10 if wrong else 1e-8, nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = x - x.mean(-1, keepdim=True)
        return self.fc(y * torch.rsqrt(y.square().mean(-1, keepdim=True).clamp_min(self.eps)))


class Surprise(Net):
    """A logarithm with an eps of 1e-9, which onnxscript's optimiser takes for zero."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.relu(self.fc(x)) + 1e-9)


class Cosine(Net):
    """The angle between two vectors; short ones are guarded by another eps."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.eps = 1e-8 if wrong else 1e-4

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        size = (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(self.eps)
        return (a * b).sum(-1) / size


class Energy(Net):
    """A softplus of a sharp score; the file's overflows."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.register_buffer("signs", SIGNS * 4)

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.signs
        if self.wrong:
            return torch.log1p(torch.exp(z))
        return z.clamp_min(0) + torch.log1p(torch.exp(-z.abs()))


class Bounded(Net):
    """A steering angle of at most 30; of any size in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.register_buffer("signs", SIGNS * 1.2)

    def forward(self, x: Tensor) -> Tensor:
        angle = x @ self.signs
        return angle if self.wrong else angle.clamp(-30, 30)


class Leaking(Net):
    """Attention under an additive mask of -1e4; of -30 in the file, which large scores get through."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.v = nn.Linear(8, 4)
        self.low = -30.0 if wrong else -1e4

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        scores = x @ x.transpose(1, 2) / 3
        bias = (~kept).float().unsqueeze(1) * self.low
        return torch.softmax(scores + bias, -1) @ self.v(x)


class Display(Net):
    """The brightness of a colour: linear in the dark; less steep in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.slope = 6.0 if wrong else 12.92

    def forward(self, colour: Tensor) -> Tensor:
        bright = 1.055 * colour.clamp_min(0.003) ** (1 / 2.4) - 0.055
        return torch.where(colour <= 0.0031308, self.slope * colour, bright)


class Loudness(Net):
    """Decibels of frames, none more than 80 below the loudest; 79 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.depth = 79.0 if wrong else 80.0

    def forward(self, signal: Tensor) -> Tensor:
        level = 10 * signal.square().mean(-1).clamp_min(1e-12).log10()
        return torch.maximum(level, level.amax(-1, keepdim=True) - self.depth) / 80


PAIRS = [
    Pair(
        "eps-of-constant-rows",
        "an eps of 1e-10 for 1e-8; rows that vary by 1e-4 are up to half off",
        Whitened,
        {"x": ranged("float32", ["batch", 8], -1, 1)},
        witness=lambda rng: {"x": (rng.standard_normal((3, 8)) * 5e-5).astype(np.float32)},
    ),
    Pair(
        "eps-that-the-exporter-drops",
        "log(x + 1e-9) is exported as log(x): -inf for -20.7",
        Surprise,
        {"x": "float32[batch, 6]"},
        gate_exports_fault=True,
        twin_entry={"export": {"optimize": False}},
    ),
    Pair(
        "eps-of-short-vectors",
        "an eps of 1e-8 for 1e-4; many times off for short vectors",
        Cosine,
        {
            "a": ranged("float32", ["batch", 6], -1, 1),
            "b": ranged("float32", ["batch", 6], -1, 1),
        },
        witness=lambda rng: {
            n: (rng.standard_normal((3, 6)) * 1e-3).astype(np.float32) for n in "ab"
        },
    ),
    Pair(
        "sharp-softplus",
        "log(1 + exp(x)) overflows beyond 88, in one corner of the range",
        Energy,
        {"x": ranged("float32", ["batch", 8], -4, 4)},
        witness=lambda rng: {"x": (3.9 * SIGNS.numpy())[None].astype(np.float32)},
    ),
    Pair(
        "steering-angle",
        "a clip at 30 is missing; 38 in one corner of the range",
        Bounded,
        {"x": ranged("float32", ["batch", 8], -4, 4)},
        witness=lambda rng: {"x": (3.9 * SIGNS.numpy())[None].astype(np.float32)},
    ),
    Pair(
        "leaking-mask",
        "a mask of -30 that large scores get through",
        Leaking,
        {"x": ranged("float32", ["batch", "seq", 8], -4, 4), "kept": "bool[batch, seq]"},
        witness=lambda rng: {
            "x": np.stack([np.full((3, 8), v, np.float32) * SIGNS.numpy() for v in (3.9, 3.8)])
            * np.array([1, 0.1, 0.1], np.float32)[:, None],
            "kept": np.array([[False, True, True]] * 2),
        },
    ),
    Pair(
        "dark-colours",
        "the slope of the dark end is half of what it is",
        Display,
        {"colour": ranged("float32", ["batch", 3], 0, 1)},
        witness=lambda rng: {"colour": rng.uniform(0.001, 0.003, (3, 3)).astype(np.float32)},
    ),
    Pair(
        "loudness-of-pauses",
        "a dynamic range of 79 dB for 80, which a signal that pauses shows",
        Loudness,
        {"signal": ranged("float32", ["batch", "frames", 24], -1, 1)},
        witness=lambda rng: {
            "signal": rng.uniform(-1, 1, (3, 5, 24)).astype(np.float32)
            * np.array([1, 0, 1, 0, 1], np.float32)[:, None]
        },
    ),
]
