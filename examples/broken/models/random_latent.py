"""A variational encoder that samples when it is asked for its answer.

Mistake: ``torch.randn_like`` in ``forward``, in eval mode too. The graph holds RandomNormalLike.
In production: the same face gets another embedding each time, and no two sides ever agree.
Remedy: return the mean in eval mode, or take the noise as an input.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class VariationalEncoder(nn.Module):
    """A latent code of features: float32[batch, 24] -> float32[batch, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Linear(24, 8)
        self.log_deviation = nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean(x)
        return mean + torch.randn_like(mean) * (0.1 * self.log_deviation(x)).exp()
