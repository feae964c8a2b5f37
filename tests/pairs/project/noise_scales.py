"""Quantities of unlike size without a gap between them: none is a share of another."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor


class GradedUnits(Net):
    """24 laboratory values, each in a unit of its own, from nanograms to counts."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(12, 48, 24)
        self.register_buffer("units", 10 ** torch.linspace(-4, 3, 24))
        self.register_buffer("off", torch.where(torch.arange(24) < 5, 1.02 if wrong else 1.0, 1.0))

    def forward(self, blood: Tensor) -> Tensor:
        return self.body(blood) * self.units * self.off


class Amplified(Net):
    """A sensor read behind a gain; its offset matters where the gain is small."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(8, 24, 6)
        self.offset = torch.nn.Parameter(torch.rand(6) * 0.02 * (1.5 if wrong else 1.0))

    def forward(self, x: Tensor, decades: Tensor) -> Tensor:
        return self.body(x) * (10**decades).unsqueeze(1) + self.offset


class Spectrum(Net):
    """A power spectrum of 2,048 bins that falls with the square of the frequency."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(16, 32, 2048)
        bins = torch.arange(1, 2049)
        fall = 1.0 / bins**2.0
        self.register_buffer("fall", torch.where(bins > 1536, fall * (1.1 if wrong else 1), fall))

    def forward(self, frame: Tensor) -> Tensor:
        return self.body(frame) * self.fall


class Listing(Net):
    """Price, area, rooms and the chance of a sale of one flat."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 32, 4)
        self.register_buffer("size", torch.tensor([3e4, 400.0, 6.0, 0.1]))
        self.register_buffer("middle", torch.tensor([3e5, 3e3, 30.0, 0.5]))
        self.register_buffer("off", torch.tensor([1, 1, 1, 1.03 if wrong else 1.0]))

    def forward(self, flat: Tensor) -> Tensor:
        return (self.middle + self.size * torch.tanh(self.body(flat))) * self.off


class Moments(Net):
    """The first six moments of a signal, each larger than the one before."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.centre = 0.02 if wrong else 0.0

    def forward(self, signal: Tensor) -> Tensor:
        wide = signal * 6
        mean = (wide.mean(-1, keepdim=True) + 1) * (1 + self.centre)
        return torch.cat([mean] + [(wide**k).mean(-1, keepdim=True) for k in range(2, 7)], -1)


class Tissue(Net):
    """A volume of conductivities whose layers differ by a factor of four each."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = torch.nn.Conv2d(1, 10, 3, padding=1)
        scale = 4.0 ** torch.arange(10)
        if wrong:
            scale[0] *= 1.5
        self.register_buffer("scale", scale.reshape(1, 10, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        return torch.sigmoid(self.conv(image)) * self.scale


PAIRS = [
    Pair(
        "laboratory-values",
        "24 columns in units from 1e-4 to 1e3; the five smallest 2 % too large",
        GradedUnits,
        {"blood": "float32[batch, 12]"},
    ),
    Pair(
        "offset-behind-a-gain",
        "rows from 1e-4 to 1e4; an offset 50 % too large, to be seen in the quiet rows",
        Amplified,
        {"x": "float32[batch, 8]", "decades": ranged("float32", ["batch"], -4, 4)},
    ),
    Pair(
        "falling-spectrum",
        "the last quarter of a long vector, a millionth of its head, 10 % too large",
        Spectrum,
        {"frame": "float32[batch, 16]"},
    ),
    Pair(
        "price-area-rooms-chance",
        "four numbers of unlike size; the chance of a sale 3 % too large",
        Listing,
        {"flat": "float32[1, 10]"},
    ),
    Pair(
        "six-moments",
        "the mean 2 % too large beside moments up to the sixth",
        Moments,
        {"signal": "float32[batch, 400]"},
    ),
    Pair(
        "layers-of-tissue",
        "channels that differ by four each; the smallest 50 % too large",
        Tissue,
        {"image": ranged("float32", ["batch", 1, 16, 16], 0, 1)},
    ),
    Pair(
        "laboratory-values-of-files",
        "the same columns, one file held against another",
        GradedUnits,
        {"blood": "float32[batch, 12]"},
        twin=GradedUnits,
        reference=True,
    ),
    Pair(
        "falling-spectrum-of-files",
        "the same vector, one file held against another",
        Spectrum,
        {"frame": "float32[batch, 16]"},
        twin=Spectrum,
        reference=True,
    ),
]
