"""A U-Net: segmentation with skip connections between an encoder and a decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def double_conv(inner: int, outer: int) -> nn.Sequential:
    """Two 3x3 convolutions that keep the size of the image."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(outer, outer, 3, padding=1),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """A mask for an image: float32[batch, 1, h, w] -> float32[batch, classes, h, w].

    ``h`` and ``w`` are multiples of 8: three times the image is halved and doubled again, and a
    skip connection joins only images of one size.
    """

    def __init__(self, width: int = 8, classes: int = 2) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 4 * width]
        self.down = nn.ModuleList(
            double_conv(inner, outer) for inner, outer in zip([1, *sizes], sizes, strict=False)
        )
        self.up = nn.ModuleList(
            double_conv(deep + skip, skip)
            for deep, skip in zip(sizes[:0:-1], sizes[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(width, classes, 1)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):  # or the deep levels would hardly move the mask
                nn.init.kaiming_normal_(part.weight)

    def forward(self, image: Tensor) -> Tensor:
        skips: list[Tensor] = []
        x = image
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for level in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = level(torch.cat([x, skips.pop()], dim=1))
        return self.head(x)
