"""A GELU written by hand, with the root of two cut to four decimals.

Mistake: 1.4142 instead of ``math.sqrt(2)``. The export is faithful to it, and ONNX Runtime, once
its optimisations are on, takes the five operators for a GELU and computes the exact one.
In production: the optimised session, the one that is deployed, is another function than the one
that was trained. The difference is small, has one sign, and adds up from layer to layer.
Remedy: ``torch.nn.functional.gelu``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def gelu(x: Tensor) -> Tensor:
    """Return x times the chance that a normal value is below x, nearly."""
    return x * 0.5 * (1.0 + torch.erf(x / 1.4142))


class Stack(nn.Module):
    """Eight residual steps: float32[batch, 32] -> float32[batch, 32]."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            x = x - 0.5 * gelu(x)
        return x
