"""A small residual network for images, with batch normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: [batch, inner, h, w] -> [batch, outer, h', w']."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Class scores of an image: float32[batch, 3, h, w] -> float32[batch, classes]."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.stages = nn.Sequential(
            Block(width, width, stride=1),
            Block(width, 2 * width, stride=2),
            Block(2 * width, 4 * width, stride=2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(image)).mean(dim=(2, 3)))


def build(width: int = 16, classes: int = 10) -> ResNet:
    """Return a network in eval mode whose running statistics are those of images in [0, 1].

    A fresh BatchNorm has mean 0 and variance 1 and does next to nothing, so an export that
    loses its statistics would look right. A trained network is not like that.
    """
    model = ResNet(width, classes)
    with torch.no_grad():
        for _ in range(8):
            model(torch.rand(8, 3, 32, 32))
    return model.eval()
