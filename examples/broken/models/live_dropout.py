"""Dropout that ``eval()`` cannot reach.

Mistake: ``F.dropout(x, 0.1)``: its ``training`` is true by default, whatever the module is told.
In production: a part of the features is dropped at random in every request.
Remedy: ``nn.Dropout``, or ``F.dropout(x, 0.1, training=self.training)``.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Head(nn.Module):
    """Class scores of features: float32[batch, 32] -> float32[batch, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(32, 64)
        self.out = nn.Linear(64, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.dropout(F.relu(self.hidden(x)), 0.1))
