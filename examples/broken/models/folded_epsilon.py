"""Batch normalisation folded into the convolution with somebody else's epsilon.

Mistake: an export script folds the two layers itself, with the epsilon of another framework (1e-3)
instead of the module's own (1e-5).
In production: channels of small variance, often the quiet and telling ones, are too weak.
Remedy: ``norm.eps``; better still, export as it is: the exporter folds the two by itself.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn


class ConvNorm(nn.Module):
    """Normalised features of an image: float32[batch, 3, 16, 16] -> float32[batch, 8, 14, 14]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.norm.running_var = torch.logspace(-2, 0, 8)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(image)))


def export(module: ConvNorm, example: dict[str, Tensor], path: Path) -> None:
    """Fold the normalisation into the convolution and write the ONNX file."""
    folded = deepcopy(module)
    norm = folded.norm
    assert norm.running_var is not None
    assert norm.running_mean is not None
    with torch.no_grad():
        factor = norm.weight / torch.sqrt(norm.running_var + 1e-3)
        folded.conv.weight *= factor[:, None, None, None]
        folded.conv.bias = nn.Parameter(norm.bias - norm.running_mean * factor)
    folded.norm = nn.Identity()  # type: ignore[assignment]
    shapes = {"image": {0: "batch"}}
    torch.onnx.export(
        folded, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
