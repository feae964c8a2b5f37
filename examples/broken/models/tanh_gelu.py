"""GELU, approximated.

Mistake: an export script replaces the exact GELU by its tanh approximation, for a runtime that once
had no Erf.
In production: wrong in the fourth digit: too little to see by eye or with a tolerance of 1e-3, and
enough to change what a long network answers.
Remedy: train with the approximation that is served, or export the exact one.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn


class FeedForward(nn.Module):
    """A residual feed-forward network: float32[batch, 24] -> float32[batch, 24]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def export(module: FeedForward, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file with every GELU approximated."""
    module = deepcopy(module)
    for owner in list(module.modules()):
        for name, child in owner.named_children():
            if isinstance(child, nn.GELU):
                setattr(owner, name, nn.GELU(approximate="tanh"))
    shapes = {"x": {0: "batch"}}
    torch.onnx.export(
        module, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
