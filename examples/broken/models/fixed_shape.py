"""An export without dynamic shapes.

Mistake: ``torch.onnx.export`` without ``dynamic_shapes``: every size of the example is final.
In production: the file works at one batch size and refuses all others.
Remedy: ``dynamic_shapes={"x": {0: "batch"}}``, which the gate's own exporters pass by themselves.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn


class Projection(nn.Module):
    """A unit vector: float32[batch, 12] -> float32[batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(self.layer(x), dim=-1)


def export(module: Projection, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file at the sizes of the example."""
    torch.onnx.export(module, (), path, kwargs=example, dynamo=True, verbose=False)
