"""An image classifier quantised to eight bits: int8 weights, fake-quantised activations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class QuantisedConv(nn.Module):
    """A 3x3 convolution whose weights are stored as int8, with one scale for each channel."""

    weight: Tensor
    scale: Tensor

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        weight = torch.randn(outer, inner, 3, 3) / (3 * inner**0.5)
        scale = weight.abs().amax(dim=(1, 2, 3), keepdim=True) / 127
        self.register_buffer("weight", torch.round(weight / scale).to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = nn.Parameter(0.1 * torch.randn(outer))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(self.scale.dtype) * self.scale
        return F.conv2d(x, weight, self.bias, self.stride, padding=1)


class FakeQuantise(nn.Module):
    """Round to one of 256 steps of ``scale`` from zero up, as eight bits would hold it."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return (x / self.scale).round().clamp(0, 255) * self.scale


class QuantisedClassifier(nn.Module):
    """Class scores of an image: float32[batch, 3, h, w] in [0, 1] -> float32[batch, classes]."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(
            FakeQuantise(1 / 255),
            QuantisedConv(3, 16, stride=2),
            nn.ReLU(),
            FakeQuantise(3 / 255),
            QuantisedConv(16, 32, stride=2),
            nn.ReLU(),
            FakeQuantise(3 / 255),
        )
        self.head = nn.Linear(32, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(image).mean(dim=(2, 3)))
