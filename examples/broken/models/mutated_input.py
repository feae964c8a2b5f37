"""Inputs changed in place.

Mistake: ``image -= mean`` writes into the caller's tensor. The ONNX model does not.
In production: the two agree, but whoever in Python uses the same batch again (a second model, a
second view, a log) uses one that is normalised already. A comparison that feeds both sides the
same tensor sees a difference that is not there, or, worse, hides one.
Remedy: ``image = image - mean``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Normalised(nn.Module):
    """Scores of an image: float32[batch, 3, 16, 16] -> float32[batch, 4]. Changes its input."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.49, 0.46, 0.41]).view(3, 1, 1))
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.head = nn.Linear(8, 4)

    def forward(self, image: Tensor) -> Tensor:
        image -= self.mean
        return self.head(torch.relu(self.conv(image)).mean(dim=(2, 3)))
