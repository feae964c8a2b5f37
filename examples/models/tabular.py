"""A regressor of rows of a table: numbers beside a category."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tabular(nn.Module):
    """A price and how sure we are of it.

    ``numbers`` is float32[batch, features], ``category`` int64[batch]; returns ``price``
    float32[batch] and ``deviation`` float32[batch], which is positive.
    """

    def __init__(self, features: int, categories: int, *, hidden: int = 32) -> None:
        super().__init__()
        self.category = nn.Embedding(categories, 8)
        self.body = nn.Sequential(
            nn.Linear(features + 8, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.Tanh()
        )
        self.price = nn.Linear(hidden, 1)
        self.deviation = nn.Linear(hidden, 1)

    def forward(self, numbers: Tensor, category: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(torch.cat([numbers, self.category(category)], dim=1))
        deviation = nn.functional.softplus(self.deviation(hidden))
        return self.price(hidden).squeeze(1), deviation.squeeze(1)
