"""Sides that nothing drawn reaches: saturation, clamps, branches, steps, outputs alike, outliers."""

from __future__ import annotations

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from pair import Net, Pair, mlp, ranged
from torch import Tensor, nn
from torch.nn import functional as F


class Squeezed(Net):
    """Channels weighed by a hard sigmoid; the file has its line without its ends."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.weigh = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)
        self.weigh.weight.data *= 4

    def forward(self, image: Tensor) -> Tensor:
        h = torch.relu(self.conv(image))
        z = self.weigh(h.mean((2, 3), keepdim=True))
        gate = z / 6 + 0.5 if self.wrong else F.hardsigmoid(z)
        return (h * gate).mean((2, 3))


class Mobile(Net):
    """A hard swish; the file has x (x + 3) / 6 for all above -3."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        self.a.weight.data *= 1.5

    def forward(self, x: Tensor) -> Tensor:
        z = self.a(x)
        h = z * (z + 3).clamp_min(0) / 6 if self.wrong else F.hardswish(z)
        return self.b(h)


class Six(Net):
    """A ReLU6; the file has a ReLU."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(12, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.b(torch.relu(h) if self.wrong else F.relu6(h))


class Floor(Net):
    """A variance that is at least 0.01; at least 0.2 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.floor, self.head = 0.2 if wrong else 0.01, mlp(8, 16, 2)
        self.head[2].bias.data += 1.5

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.head(x).clamp_min(self.floor))


class Branch(Net):
    """Inputs of a great length go to another network, whose matrices are exchanged in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.other = mlp(8, 8, 8), mlp(8, 8, 8)
        if wrong:
            first, second = self.other[0].weight, self.other[2].weight
            first.data, second.data = second.data.clone(), first.data.clone()

    def forward(self, x: Tensor) -> Tensor:
        far = x.norm(dim=-1, keepdim=True) > 10.0
        return torch.where(far, self.other(x), self.body(x))


class Counter(Net):
    """A filter that starts anew every 360 steps; at every 361st in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.period = nn.Linear(4, 4), 360 if wrong else 359

    def forward(self, x: Tensor, state: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        anew = (step == self.period).unsqueeze(1)
        state = torch.where(anew, 0.0, 0.9 * state + torch.tanh(self.fc(x)))
        return state, step + 1


class Cache(Net):
    """A cache of the last 48 states; of the last 40 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.q, self.kept = nn.Linear(6, 6), 40 if wrong else 48

    def forward(self, x: Tensor, past: Tensor) -> Tensor:
        at = torch.arange(past.shape[1]).flip(0)
        scores = (past @ self.q(x).unsqueeze(-1)).squeeze(-1)
        scores = torch.where(at < self.kept, scores, -1e9)
        return (torch.softmax(scores, -1).unsqueeze(-1) * past).sum(1)


class Alike(Net):
    """A quantity bounded above and the same bounded below; exchanged in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        upper, lower = y.clamp_max(4.0), y.clamp_min(-4.0)
        return (lower, upper) if self.wrong else (upper, lower)


class Safe(Net):
    """Scores, and scores that are 0 for implausible inputs; exchanged in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(9, 24, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        safe = torch.where(x.abs().sum(-1, keepdim=True) > 24, 0.0, y)
        return (safe, y) if self.wrong else (y, safe)


class Outlier(Net):
    """Activations of any size; clipped at 9 in the file, as trained ones leave."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = mlp(16, 32, 32), nn.Linear(32, 4)
        self.a[2].weight.data *= 3

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.b(h.clamp(-9, 9) if self.wrong else h)


class Quantised(Net):
    """Activations in 8 bits; the file's range ends at 3.5 and not at 4."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b, self.high = nn.Linear(8, 8), nn.Linear(8, 3), 239 if wrong else 255

    def forward(self, x: Tensor) -> Tensor:
        q = torch.ops.quantized_decomposed
        h = self.a(x)
        whole = q.quantize_per_tensor(h, 1 / 32, 128, 0, self.high, torch.uint8)
        if self.wrong:
            whole = whole.clamp_max(self.high)
        return self.b(q.dequantize_per_tensor(whole, 1 / 32, 128, 0, 255, torch.uint8))


class Half(Net):
    """A sum of squares that is at most the largest float16; half of it in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.limit = nn.Linear(12, 12), 32752.0 if wrong else 65504.0

    def forward(self, x: Tensor) -> Tensor:
        power = 300 * self.a(x).square().sum(-1)
        return torch.sqrt(power.clamp_max(self.limit))


def large(scale: float, *shape: int):
    """Inputs of this size and either sign, in the domain that four times the draws make."""
    return lambda rng: {"x": (scale * np.sign(rng.standard_normal(shape))).astype(np.float32)}


def cached(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((2, 6), np.float32),
        "past": rng.standard_normal((2, 60, 6), np.float32),
    }


def counted(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((2, 4), np.float32),
        "state": rng.standard_normal((2, 4), np.float32),
        "step": np.array([359, 360]),
    }


PAIRS = [
    Pair(
        "hard-sigmoid",
        "the ends of a hard sigmoid are missing",
        Squeezed,
        {"image": ranged("float32", ["batch", 3, 10, 10], -4, 4)},
        witness=lambda rng: {
            "image": (
                4 * np.sign(rng.standard_normal((40, 3, 1, 1))) * np.ones((1, 1, 10, 10))
            ).astype(np.float32)
        },
    ),
    Pair(
        "hard-swish",
        "a hard swish is not linear above 3",
        Mobile,
        {"x": "float32[batch, 8]"},
        witness=large(4, 60, 8),
    ),
    Pair(
        "relu-six",
        "a ReLU6 without its six",
        Six,
        {"x": "float32[batch, 12]"},
        witness=large(8, 60, 12),
    ),
    Pair(
        "least-variance",
        "a variance is at least 0.2 and not 0.01",
        Floor,
        {"x": ranged("float32", ["batch", 8], -6, 6)},
        witness=large(6, 200, 8),
    ),
    Pair(
        "branch-never-taken",
        "matrices of a network that nothing drawn goes to are exchanged",
        Branch,
        {"x": ranged("float32", ["batch", 8], -5, 5)},
        witness=large(5, 6, 8),
    ),
    Pair(
        "every-360-steps",
        "a state starts anew a step later",
        Counter,
        {
            "x": "float32[batch, 4]",
            "state": "float32[batch, 4]",
            "step": {"dtype": "int64", "shape": ["batch"], "range": [0, 3000]},
        },
        witness=counted,
    ),
    Pair(
        "cache-of-48",
        "a cache is cut at 40 and not at 48",
        Cache,
        {"x": "float32[batch, 6]", "past": "float32[batch, past, 6]"},
        witness=cached,
    ),
    Pair(
        "upper-and-lower",
        "two outputs that are alike below 4 are exchanged",
        Alike,
        {"x": ranged("float32", ["batch", 10], -4, 4)},
        witness=large(4, 60, 10),
    ),
    Pair(
        "plain-and-safe",
        "two outputs that are alike but for implausible inputs are exchanged",
        Safe,
        {"x": ranged("float32", ["batch", 9], -4, 4)},
        witness=large(3.5, 6, 9),
    ),
    Pair(
        "outliers",
        "activations beyond 9 are clipped, as no random input has them",
        Outlier,
        {"x": "float32[batch, 16]"},
        witness=large(9, 400, 16),
    ),
    Pair(
        "range-of-a-quantiser",
        "the range of a quantiser ends at 3.5 and not at 4",
        Quantised,
        {"x": ranged("float32", ["batch", 8], -4, 4)},
        witness=large(4, 300, 8),
    ),
    Pair(
        "largest-float16",
        "a limit of 32752 and not of 65504",
        Half,
        {"x": ranged("float32", ["batch", 12], -4, 4)},
        witness=large(4, 300, 12),
    ),
]
