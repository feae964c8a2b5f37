"""Python state that changes with every call.

Mistake: ``self.calls += 1`` in ``forward``. The exporter runs Python once, so the graph holds the
value of that one call.
In production: the schedule never advances; and in PyTorch, the answer depends on who called before.
Remedy: pass the state in as an input and out as an output.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Annealed(nn.Module):
    """Probabilities that sharpen call after call: float32[batch, 12] -> float32[batch, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 5)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.softmax(self.head(x) * (1 + 0.1 * self.calls), dim=-1)
