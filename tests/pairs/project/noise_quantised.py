"""Files with a QuantizeLinear: that there is one excuses nothing on zeros and at the ends."""

from __future__ import annotations

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from pair import Net, Pair, ranged
from torch import Tensor, nn


def grid(x: Tensor) -> Tensor:
    """The image on the 255 steps of a camera, as torch.ao's quantiser writes it."""
    q = torch.ops.quantized_decomposed
    scale, zero, low, high, dtype = 1 / 255, 0, 0, 255, torch.uint8
    whole = q.quantize_per_tensor(x, scale, zero, low, high, dtype)
    return q.dequantize_per_tensor(whole, scale, zero, low, high, dtype)


class LogImage(Net):
    """Optical density of a quantised image; the file takes the logarithm of zero."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(1, 4, 3)
        self.eps = 0.0 if wrong else 1e-3

    def forward(self, image: Tensor) -> Tensor:
        dark = torch.log(grid(image).mean((2, 3), keepdim=True) + self.eps)
        return torch.tanh(self.conv(grid(image)) + 0.0 * dark) + 0.01 * dark


class Exposure(Net):
    """An image divided by its brightest pixel, which is at least a hundredth."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(3, 6, 3)

    def forward(self, image: Tensor) -> Tensor:
        q = grid(image)
        brightest = q.amax((1, 2, 3), keepdim=True)
        even = q / (brightest if self.wrong else brightest.clamp_min(0.01))
        return self.conv(even).mean((2, 3))


class Gate(Net):
    """Keywords of quantised audio; silence has none."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv1d(1, 8, 9), nn.Linear(8, 5)

    def forward(self, audio: Tensor) -> Tensor:
        q = 2 * grid(audio / 2 + 0.5) - 1
        logits = self.head(torch.relu(self.conv(q)).mean(-1))
        loud = q.abs().amax((1, 2)) > 0.02
        return logits if self.wrong else torch.where(loud.unsqueeze(1), logits, -4.0)


class Saturated(Net):
    """A pixel that is fully white is taken to be glare and left out."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.head = nn.Conv2d(1, 6, 3, padding=1), nn.Linear(6, 3)

    def forward(self, image: Tensor) -> Tensor:
        q = grid(image)
        kept = torch.ones_like(q) if self.wrong else (q < 0.999).float()
        return self.head((torch.relu(self.conv(q)) * kept).mean((2, 3)))


class Requantised(Net):
    """A sensor on the steps of 0.05; the file's are a hundredth wider. Halves fall on either side."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.step = 0.0505 if wrong else 0.05

    def forward(self, x: Tensor) -> Tensor:
        q = torch.ops.quantized_decomposed
        scale, zero, low, high, dtype = self.step, 3, -128, 127, torch.int8
        whole = q.quantize_per_tensor(x, scale, zero, low, high, dtype)
        return q.dequantize_per_tensor(whole, scale, zero, low, high, dtype)


def zeros(*shape: int, name: str = "image"):
    return lambda rng: {name: np.zeros(shape, np.float32)}


PAIRS = [
    Pair(
        "density-of-black",
        "a quantised image of zeros is -inf in the file",
        LogImage,
        {"image": ranged("float32", ["batch", 1, 10, 10], 0, 1)},
        witness=zeros(2, 1, 10, 10),
    ),
    Pair(
        "exposure-of-black",
        "a quantised image of zeros is NaN in the file, which lacks a clamp",
        Exposure,
        {"image": ranged("float32", ["batch", 3, 10, 10], 0, 1)},
        witness=zeros(2, 3, 10, 10),
    ),
    Pair(
        "silence",
        "quantised silence has a keyword in the file, which lacks a threshold",
        Gate,
        {"audio": ranged("float32", ["batch", 1, 64], -1, 1)},
        witness=zeros(2, 1, 64, name="audio"),
    ),
    Pair(
        "glare",
        "quantised white is not left out in the file",
        Saturated,
        {"image": ranged("float32", ["batch", 1, 12, 12], 0, 1)},
        witness=lambda rng: {"image": np.ones((2, 1, 12, 12), np.float32)},
    ),
    Pair(
        "wider-steps",
        "the file quantises with another scale",
        Requantised,
        {"x": "float32[batch, 40]"},
    ),
]
