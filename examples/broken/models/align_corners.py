"""Upsampling with the corners elsewhere.

Mistake: an export script turns ``align_corners`` off, because the target does not know it.
In production: masks are shifted by up to half a pixel of the small image; it looks right until the
edges are measured.
Remedy: train with ``align_corners=False``.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn


class MaskHead(nn.Module):
    """A mask at four times the size: float32[batch, 6, h, w] -> float32[batch, 1, 4h, 4w]."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(6, 1, 1)
        self.grow = nn.Upsample(scale_factor=4, mode="bilinear", align_corners=True)

    def forward(self, features: Tensor) -> Tensor:
        return torch.sigmoid(self.grow(self.project(features)))


def export(module: MaskHead, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file with ``align_corners`` off."""
    module = deepcopy(module)
    module.grow.align_corners = False
    shapes = {"features": {0: "batch", 2: "height", 3: "width"}}
    torch.onnx.export(
        module, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
