"""Several quantities in one output: none may hide behind another's size."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn


class MaskedLogits(Net):
    """Scores of the actions that are allowed, -1e9 for the others."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.other = mlp(20, 64, 32), mlp(20, 64, 32)

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        return (self.other if self.wrong else self.fc)(x).masked_fill(~allowed, -1e9)


class Vocabulary(Net):
    """Next-token scores with a fixed set of tokens that are never to be sampled."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.rnn, self.head = nn.Embedding(64, 24), mlp(24, 48, 24), nn.Linear(24, 64)
        banned = torch.zeros(64)
        banned[::7] = -1e9
        self.register_buffer("banned", banned)
        if wrong:
            self.head.weight.data *= 1.05

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(ids))) + self.banned


class Scores(Net):
    """Attention scores before the softmax, the future at the dtype's lowest number."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.q, self.k = nn.Linear(32, 32), nn.Linear(32, 32)
        self.factor = 16**-0.5 if wrong else 32**-0.5

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        scores = self.q(x) @ self.k(x).transpose(1, 2) * self.factor
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        return scores + torch.zeros(n, n).masked_fill(future, torch.finfo(x.dtype).min)


class Distances(Net):
    """Distances between points, 1e10 for pairs that do not count."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.lift = mlp(3, 24, 8)

    def forward(self, points: Tensor, valid: Tensor) -> Tensor:
        f = self.lift(points)
        gap = (f.unsqueeze(1) - f.unsqueeze(0)).square().sum(-1)
        distance = gap.add(1e-6).sqrt() * (1.03 if self.wrong else 1.0)
        return torch.where(valid.unsqueeze(0) & valid.unsqueeze(1), distance, 1e10)


class Weather(Net):
    """Pressure in pascals beside relative humidity from 0 to 1."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(16, 48, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        pressure = 101325 + 1500 * y[:, :1]
        humidity = torch.sigmoid(y[:, 1:]) * (1.05 if self.wrong else 1.0)
        return torch.cat([pressure, humidity], 1)


class Boxes(Net):
    """Boxes in pixels and the probabilities of two classes, as detectors join them."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 6, 3, 2, 1))

    def forward(self, image: Tensor) -> Tensor:
        y = self.conv(image).flatten(2).transpose(1, 2)
        probability = torch.sigmoid(y[..., 4:] * (1.1 if self.wrong else 1.0))
        return torch.cat([640 * torch.sigmoid(y[..., :4]), probability], -1)


class Depth(Net):
    """Depth in millimetres and a confidence, on axis 1."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.trunk, self.depth = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 1, 1)
        self.sure = nn.Conv2d(12, 1, 1)
        if wrong:
            self.sure.bias.data += 0.1

    def forward(self, image: Tensor) -> Tensor:
        h = torch.relu(self.trunk(image))
        depth = 4000 + 2500 * torch.tanh(self.depth(h))
        return torch.cat([depth, torch.sigmoid(self.sure(h))], 1)


class MaskedChoice(Net):
    """The best allowed token at every position."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head, self.other = nn.Embedding(30, 16), mlp(16, 32, 24), mlp(16, 32, 24)

    def forward(self, ids: Tensor, allowed: Tensor) -> Tensor:
        logits = (self.other if self.wrong else self.head)(self.embed(ids))
        return logits.masked_fill(~allowed, -1e9).argmax(-1)


class MaskedTop(Net):
    """The three best allowed items, and their scores."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.user, self.items = mlp(12, 24, 16), nn.Linear(16, 40)
        if wrong:
            self.items.weight.data = self.items.weight.data.roll(1, 0)

    def forward(self, user: Tensor, in_stock: Tensor) -> tuple[Tensor, Tensor]:
        best = self.items(self.user(user)).masked_fill(~in_stock, -1e9).topk(3, -1)
        return best.values, best.indices


class NearestCode(Net):
    """The nearest code of a codebook some of whose codes are dead."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.encode, self.codes = mlp(10, 32, 6), nn.Parameter(torch.randn(24, 6))
        self.register_buffer("dead", torch.arange(24) % 5 == 2)
        if wrong:
            self.codes.data = self.codes.data.flip(1)

    def forward(self, x: Tensor) -> Tensor:
        gap = (self.encode(x).unsqueeze(1) - self.codes).square().sum(-1)
        return gap.masked_fill(self.dead, 1e10).argmin(-1)


class Forecast(Net):
    """A timestamp in seconds beside the forecast for it, in float64."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 3)).double()

    def forward(self, history: Tensor, now: Tensor) -> Tensor:
        ahead = self.body(history) * (1.01 if self.wrong else 1.0)
        return torch.cat([now.unsqueeze(1) + 3600.0, ahead], 1)


class HalfLogits(Net):
    """float16 scores, forbidden ones at float16's lowest number."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.other = nn.Linear(16, 12).half(), nn.Linear(16, 12).half()

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        low = torch.finfo(x.dtype).min
        return (self.other if self.wrong else self.fc)(x).masked_fill(~allowed, low)


PAIRS = [
    Pair(
        "forbidden-actions",
        "masked_fill(-1e9) over logits with wholly other weights",
        MaskedLogits,
        {"x": "float32[batch, 20]", "allowed": "bool[batch, 32]"},
    ),
    Pair(
        "banned-tokens",
        "a constant -1e9 for some tokens, the others 5 % too large",
        Vocabulary,
        {"ids": tokens(["batch", "seq"], 63)},
    ),
    Pair(
        "finfo-min-causal",
        "scores beside finfo.min, divided by the wrong root",
        Scores,
        {"x": "float32[batch, seq, 32]"},
    ),
    Pair(
        "invalid-pairs",
        "distances 3 % too large beside 1e10 for invalid pairs",
        Distances,
        {"points": "float32[n, 3]", "valid": "bool[n]"},
    ),
    Pair(
        "pressure-and-humidity",
        "humidity 5 % wrong beside pressure in pascals",
        Weather,
        {"x": "float32[batch, 16]"},
    ),
    Pair(
        "pixels-and-probabilities",
        "probabilities of wrong logits beside boxes in pixels",
        Boxes,
        {"image": ranged("float32", ["batch", 3, 32, 32], 0, 1)},
    ),
    Pair(
        "depth-and-confidence",
        "a confidence with a shifted bias beside millimetres, on axis 1",
        Depth,
        {"image": ranged("float32", ["batch", 3, "height", "width"], 0, 1)},
        entry={"dims": {"height": [16, 24], "width": [16, 32]}},
    ),
    Pair(
        "masked-argmax",
        "argmax after masked_fill(-1e9), all tokens wrong",
        MaskedChoice,
        {"ids": tokens(["batch", "seq"], 29), "allowed": "bool[batch, seq, 24]"},
    ),
    Pair(
        "masked-topk",
        "topk after masked_fill(-1e9), over rolled weights",
        MaskedTop,
        {"user": "float32[batch, 12]", "in_stock": "bool[batch, 40]"},
    ),
    Pair(
        "dead-codes",
        "argmin beside 1e10 for dead codes, over a flipped codebook",
        NearestCode,
        {"x": "float32[batch, 10]"},
    ),
    Pair(
        "timestamp-and-forecast",
        "a forecast 1 % wrong beside a timestamp, float64",
        Forecast,
        {
            "history": "float64[batch, 8]",
            "now": ranged("float64", ["batch"], 1.6e9, 1.8e9),
        },
    ),
    Pair(
        "half-forbidden",
        "float16 scores of other weights beside -65504",
        HalfLogits,
        {"x": "float16[batch, 16]", "allowed": "bool[batch, 12]"},
    ),
]
