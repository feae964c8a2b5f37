"""Models that PyTorch itself computes badly: what is systematic is no rounding."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor, nn


class Variance(Net):
    """E[x^2] - E[x]^2 of numbers around 100."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.gain = nn.Parameter(torch.rand(6) + 0.5)
        self.factor = 1.1 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        return (x.square().mean(-1) - x.mean(-1).square()) * self.gain * self.factor


class Logistic(Net):
    """A chaotic map, twelve times; the file's parameter is wrong in the fourth digit."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.rate = nn.Parameter(torch.tensor([3.7, 3.8, 3.9]))
        self.factor = 1.05 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(12):
            x = self.rate * x * (1 - x)
        return x * self.factor


class Growth(Net):
    """(exp(x) - 1) / x for small x, as it is written down by hand."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.mix = nn.Parameter(torch.rand(8))
        self.factor = 1.02 if wrong else 1.0

    def forward(self, rate: Tensor) -> Tensor:
        return (torch.exp(rate) - 1) / rate * self.mix * self.factor


class Steep(Net):
    """Eight layers of tanh with large weights: errors grow from layer to layer."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(8))
        self.head = nn.Linear(24, 5)
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=0.6)
        if wrong:
            self.head.weight.data *= 1.3

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


class Offset(Net):
    """A layer norm over numbers that lie close together, far from zero."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 6)
        if wrong:
            self.head.weight.data *= 1.05
            self.head.bias.data *= 1.05

    def forward(self, pressure: Tensor) -> Tensor:
        return self.head(self.norm(pressure))


class Gram(Net):
    """Squared distances as |a|^2 + |b|^2 - 2ab, of points that lie close together."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.factor = 1.1 if wrong else 1.0

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        squares = a.square().sum(-1, keepdim=True) + b.square().sum(-1)
        return (squares - 2 * a @ b.transpose(0, 1)) * self.scale * self.factor


class Centred(Net):
    """Instance norm, twice, then other weights: zeros and ones are noise, the rest is not."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 3)
        self.norms = nn.ModuleList([nn.InstanceNorm2d(8), nn.InstanceNorm2d(6)])
        self.head, self.other = mlp(6, 12, 3), mlp(6, 12, 3)

    def forward(self, image: Tensor) -> Tensor:
        h = self.norms[1](self.b(torch.relu(self.norms[0](self.a(image)))))
        return (self.other if self.wrong else self.head)(h.amax((2, 3)))


PAIRS = [
    Pair(
        "variance-by-hand",
        "10 % too large where PyTorch is wrong by a per cent",
        Variance,
        {"x": ranged("float32", ["batch", 6, 40], 100, 101)},
    ),
    Pair(
        "chaotic-map",
        "5 % too large where PyTorch is wrong by a part in a thousand",
        Logistic,
        {"x": ranged("float32", ["batch", 3], 0.2, 0.8)},
    ),
    Pair(
        "growth-by-hand",
        "2 % too large, and not by rounding",
        Growth,
        {"rate": ranged("float32", ["batch", 8], 1e-4, 2e-4)},
    ),
    Pair(
        "steep-layers",
        "a last layer 1.3 times too large behind layers that blow errors up",
        Steep,
        {"x": "float32[batch, 24]"},
    ),
    Pair(
        "layer-norm-offset",
        "5 % too large behind a layer norm of numbers around 1,000",
        Offset,
        {"pressure": ranged("float32", ["batch", 32], 1000, 1000.5)},
    ),
    Pair(
        "gram-distances",
        "squared distances 10 % too large at an own error of two per cent",
        Gram,
        {
            "a": ranged("float32", ["n", 16], 30, 30.2),
            "b": ranged("float32", ["m", 16], 30.3, 30.5),
        },
    ),
    Pair(
        "instance-norm-other-weights",
        "wholly other weights behind instance norms",
        Centred,
        {"image": "float32[batch, 3, 14, 14]"},
    ),
]
