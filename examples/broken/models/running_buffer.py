"""A buffer that ``forward`` writes, as a streaming model keeps its past.

Mistake: the state lives in the module. The exporter turns the write into a value that nobody
returns, so the ONNX model starts from the same past each time.
In production: no frame is ever smoothed with the one before.
Remedy: take the state as an input and return the new one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Smoother(nn.Module):
    """Features, smoothed over time: float32[batch, 10] -> float32[batch, 6]."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 6)
        self.register_buffer("past", 0.1 * torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        now = 0.9 * self.past + 0.1 * self.layer(x)
        self.past.copy_(now.mean(dim=0))
        return now
