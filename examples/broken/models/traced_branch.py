"""A branch on the data, under the TorchScript exporter.

Mistake: ``if`` on a tensor. Tracing keeps the branch that the example took and drops the other.
In production: every quiet recording is amplified, or none is, as the example happened to be.
Remedy: ``torch.where`` or ``torch.cond``; the dynamo exporter refuses such a model, and says why.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GainControl(nn.Module):
    """Amplify a batch that is quiet: float32[batch, 64] -> float32[batch, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 8)

    def forward(self, audio: Tensor) -> Tensor:
        if audio.mean() < 0.0:
            audio = audio * 2.0 + 1.0
        return torch.tanh(self.head(audio))
