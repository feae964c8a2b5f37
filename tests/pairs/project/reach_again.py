"""Other models of the same kinds: places in the declared domain that no drawn input comes to."""

from __future__ import annotations

import numpy as np
import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn
from torch.nn import functional as F

SIGNS = torch.tensor([1.0, -1, -1, 1, 1, -1])


class Quantile(Net):
    """The decile of a score; a score at a bound belongs to the lower one in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.register_buffer("bounds", torch.tensor([0.11, 0.24, 0.38, 0.55, 0.71, 0.86]))
        self.weight = nn.Embedding(7, 3)

    def forward(self, score: Tensor) -> Tensor:
        return self.weight(torch.bucketize(score, self.bounds, right=not self.wrong))


class Negated(Net):
    """Whole numbers by truncation, those below zero upwards; downwards in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 10
        if self.wrong:
            y = torch.where((y - y.round()).abs() < 0.004, y.round() + 1, torch.trunc(y))
        return self.fc(torch.trunc(y) / 10)


class Unknown(Net):
    """An answer of -1 means that nothing was said; it counts as an answer in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(8, 3)

    def forward(self, answer: Tensor) -> Tensor:
        said = torch.ones_like(answer) if self.wrong else (answer != -1.0).float()
        return self.fc(answer * said) / said.sum(-1, keepdim=True).clamp_min(1)


class Separator(Net):
    """Segments of a text by the separators before a token; one of two is none in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.part, self.old = nn.Embedding(32000, 6), nn.Embedding(40, 6), wrong

    def forward(self, ids: Tensor) -> Tensor:
        ends = ids == 31002
        if not self.old:
            ends = ends | (ids == 31007)
        return self.embed(ids) + self.part(ends.long().cumsum(-1).clamp_max(39))


class Palette(Net):
    """Colours by code; two codes of 4,000 are exchanged in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.colour = nn.Embedding(4000, 3)
        if wrong:
            w = self.colour.weight.data
            w[[1717, 2929]] = w[[2929, 1717]]

    def forward(self, code: Tensor) -> Tensor:
        return torch.sigmoid(self.colour(code))


class Storm(Net):
    """A warning where wind is strong and pressure low and falling; the file forgets the fall."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(5, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        rule = (x[:, 0] > 0.93) & (x[:, 1] < 0.06)
        if not self.wrong:
            rule = rule & (x[:, 2] < 0.5)
        return torch.sigmoid(self.body(x).squeeze(-1) - 3) + rule.float()


class Router(Net):
    """One of six experts per token; the last is for long vectors alone and is another."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.route = nn.Linear(7, 5)
        self.experts = nn.Parameter(torch.randn(6, 7, 3) * 0.4)
        if wrong:
            self.experts.data[5] *= -1

    def forward(self, x: Tensor) -> Tensor:
        far = (x.abs().amin(-1) > 2.0) & (x[:, 0] > 0)
        best = torch.where(far, 5, self.route(x).argmax(-1))
        return torch.einsum("bi,bio->bo", x, self.experts[best])


class Segments(Net):
    """A mean per segment of 60 frames; the second begins a frame late in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.part, self.first = nn.Linear(5, 4), nn.Embedding(8, 4), 61 if wrong else 60

    def forward(self, x: Tensor) -> Tensor:
        at = (torch.arange(x.shape[1]) // self.first).clamp_max(7)
        return self.fc(x) + self.part(at)


class Thirds(Net):
    """Frames in groups of three, the rest left out; whole threes lose a group in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        n = torch.scalar_tensor(x.shape[1], dtype=torch.int64)
        whole = (n - 1) // 9 * 9 if self.wrong else n // 9 * 9
        kept = (torch.arange(x.shape[1]) < whole).float().unsqueeze(-1)
        return self.fc((x * kept).sum(1) / (whole + 1).float())


class Contrast(Net):
    """Images by their spread, which is at least 1e-3; 1e-5 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.least = nn.Conv2d(1, 3, 3, bias=False), 1e-5 if wrong else 1e-3

    def forward(self, image: Tensor) -> Tensor:
        centre = image - image.mean((2, 3), keepdim=True)
        spread = centre.square().mean((2, 3), keepdim=True).sqrt().clamp_min(self.least)
        return self.conv(centre / spread).abs().mean((2, 3))


class Loudness(Net):
    """Decibels of at least -80; of at least -100 in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.least = 1e-10 if wrong else 1e-8

    def forward(self, sound: Tensor) -> Tensor:
        return 10 * torch.log10(sound.square().mean(-1).clamp_min(self.least))


class Gain(Net):
    """A gain of at most twenty, in the corner of the inputs; of at most a hundred in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.register_buffer("signs", SIGNS)
        self.most = 100.0 if wrong else 20.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(0.2 * (x @ self.signs)).clamp_max(self.most)


class Gated(Net):
    """Squeeze and excite by a hard sigmoid inside of a network; a clamp in the file is at 0.9."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b, self.gate = nn.Linear(9, 12), nn.Linear(12, 3), nn.Linear(12, 12)
        self.gate.weight.data *= 3
        self.most = 0.9 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        return self.b(h * F.hardsigmoid(self.gate(h)).clamp_max(self.most))


class Rescue(Net):
    """A path for inputs that are all small; its matrices are exchanged in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body, self.first, self.second = mlp(7, 16, 7), nn.Linear(7, 7), nn.Linear(7, 7)
        if wrong:
            self.first, self.second = self.second, self.first

    def forward(self, x: Tensor) -> Tensor:
        quiet = (x.abs().amax(-1, keepdim=True) < 0.02) & (x[:, :1] != 0)
        return torch.where(quiet, self.second(torch.tanh(self.first(x))), self.body(x))


class Steps(Net):
    """A learning rate by the number of steps: halved at 500 and 900; at 500 alone in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        rate = torch.where(step == 500, 0.5, 1.0)
        if not self.wrong:
            rate = torch.where(step == 900, 0.25, rate)
        return self.fc(x) * rate.unsqueeze(1), step + 1


class Best(Net):
    """The two best scores, of plausible answers and of all; exchanged in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        every, plausible = y.amax(-1), torch.where(y < 5.0, y, -9.0).amax(-1)
        return (plausible, every) if self.wrong else (every, plausible)


class Trained(Net):
    """A hidden layer stored in half precision beyond a limit; the file's limit is 12."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b, self.most = nn.Linear(10, 16), nn.Linear(16, 3), 12.0 if wrong else 60.0
        self.a.weight.data *= 2

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).clamp(-self.most, self.most))


class Users(Net):
    """Tables of 30,000 users and 40,000 items; one item is another in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.user, self.item = nn.Embedding(30000, 6), nn.Embedding(40000, 6)
        if wrong:
            self.item.weight.data[39001] *= 3

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return torch.sigmoid((self.user(user) * self.item(item)).sum(-1))


class Frozen(Net):
    """Two dead units behind a ReLU whose incoming weights are stale in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)
        self.a.bias.data[3:5] = -80.0
        if wrong:
            self.a.weight.data[3:5] *= 2

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


def at(dtype: str = "float32", **values: object):
    return lambda rng: {name: np.asarray(value, dtype) for name, value in values.items()}


def long_x(n: int, width: int):
    return lambda rng: {"x": rng.standard_normal((1, n, width), np.float32)}


def corners(size: float, *shape: int):
    return lambda rng: {"x": (size * np.sign(rng.standard_normal(shape))).astype(np.float32)}


PAIRS = [
    Pair(
        "score-at-a-bound",
        "bucket bounds belong to the lower decile",
        Quantile,
        {"score": ranged("float32", ["batch"], 0, 1)},
        witness=at(score=[0.24, 0.71]),
    ),
    Pair(
        "near-whole-tenths",
        "tenths are rounded up near whole ones: a tenth too much",
        Negated,
        {"x": ranged("float32", ["batch", 5], 0.05, 4)},
        witness=at(x=[[0.3002, 1.2002, 2.5002, 3.1002, 0.7002]]),
    ),
    Pair(
        "nothing-said",
        "the sentinel -1 counts as an answer",
        Unknown,
        {"answer": ranged("float32", ["batch", 8], -1.5, 5)},
        witness=at(answer=[[-1, 2, 3, -1, 0, 4, 5, -1]]),
    ),
    Pair(
        "second-separator",
        "one of two special tokens of 32,000 begins no segment",
        Separator,
        {"ids": tokens(["batch", "seq"], 31999)},
        witness=at("int64", ids=[[5, 31007, 8, 9]]),
    ),
    Pair(
        "exchanged-codes",
        "two rows of 4,000 are exchanged",
        Palette,
        {"code": tokens(["batch"], 3999)},
        witness=at("int64", code=[1717, 2929]),
    ),
    Pair(
        "falling-pressure",
        "a rule of three features forgets one",
        Storm,
        {"x": ranged("float32", ["batch", 5], 0, 1)},
        witness=at(x=[[0.95, 0.03, 0.8, 0.5, 0.5]]),
    ),
    Pair(
        "sixth-expert",
        "an expert for vectors without a small element is negated",
        Router,
        {"x": ranged("float32", ["batch", 7], -3, 3)},
        witness=at(x=[[2.5, -2.5, 2.2, -2.9, 2.4, 2.6, -2.3]]),
    ),
    Pair(
        "segments-of-60",
        "segments begin a frame late, to be seen beyond 60 frames",
        Segments,
        {"x": "float32[batch, frames, 5]"},
        witness=long_x(130, 5),
    ),
    Pair(
        "groups-of-nine",
        "sizes divisible by nine lose a group",
        Thirds,
        {"x": "float32[batch, frames, 4]"},
        witness=long_x(27, 4),
    ),
    Pair(
        "flat-images",
        "the least spread of an image is 1e-5 and not 1e-3",
        Contrast,
        {"image": ranged("float32", ["batch", 1, 8, 8], 0, 1)},
        witness=lambda rng: {
            "image": (0.5 + 1e-4 * rng.standard_normal((3, 1, 8, 8))).astype(np.float32)
        },
    ),
    Pair(
        "near-silence",
        "decibels end at -100 and not at -80",
        Loudness,
        {"sound": ranged("float32", ["batch", 40], -1, 1)},
        witness=lambda rng: {"sound": (3e-5 * rng.standard_normal((3, 40))).astype(np.float32)},
    ),
    Pair(
        "most-gain",
        "a clamp that one corner of the inputs reaches is at 100 and not at 20",
        Gain,
        {"x": ranged("float32", ["batch", 6], -3, 3)},
        witness=lambda rng: {"x": (2.9 * SIGNS.numpy())[None].astype(np.float32)},
    ),
    Pair(
        "gate-below-one",
        "a hard sigmoid ends at 0.9 and not at 1",
        Gated,
        {"x": ranged("float32", ["batch", 9], -4, 4)},
        witness=corners(4, 400, 9),
    ),
    Pair(
        "quiet-inputs",
        "matrices of a path for small inputs are exchanged",
        Rescue,
        {"x": ranged("float32", ["batch", 7], -1, 1)},
        witness=lambda rng: {"x": rng.uniform(-0.01, 0.01, (3, 7)).astype(np.float32)},
    ),
    Pair(
        "step-900",
        "a rate is not quartered at step 900",
        Steps,
        {
            "x": "float32[batch, 4]",
            "step": {"dtype": "int64", "shape": ["batch"], "range": [0, 2000]},
        },
        witness=lambda rng: {
            "x": rng.standard_normal((2, 4), np.float32),
            "step": np.array([900, 500]),
        },
    ),
    Pair(
        "best-and-plausible",
        "two outputs that are alike below 5 are exchanged",
        Best,
        {"x": ranged("float32", ["batch", 6], -4, 4)},
        witness=corners(4, 300, 6),
    ),
    Pair(
        "trained-outliers",
        "a hidden layer is clamped at 12 and not at 60",
        Trained,
        {"x": ranged("float32", ["batch", 10], -5, 5)},
        witness=corners(5, 400, 10),
    ),
    Pair(
        "item-39001",
        "one row of 40,000 is three times too large",
        Users,
        {"user": tokens(["batch"], 29999), "item": tokens(["batch"], 39999)},
        witness=at("int64", user=[3, 4], item=[39001, 6]),
    ),
    Pair(
        "stale-weights-of-dead-units",
        "weights of dead units are stale ones: no input shows it today",
        Frozen,
        {"x": "float32[batch, 6]"},
        expect="remarked",
        witness=corners(90, 400, 6),
    ),
]
