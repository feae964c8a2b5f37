"""Noise drawn by NumPy inside ``forward``.

Mistake: test-time dithering with ``numpy.random``. The exporter runs it once, and the noise of that
call becomes a constant of the graph.
In production: all inputs get the same noise, and no two runs of PyTorch agree to compare with.
Remedy: draw the noise outside and pass it in, or only where ``self.training``.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class Dithered(nn.Module):
    """A layer on dithered features: float32[batch, 20] -> float32[batch, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.tensor(np.random.uniform(-0.01, 0.01, 20), dtype=x.dtype)
        return self.layer(x + noise)
