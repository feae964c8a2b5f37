"""A keyword spotter in half precision, for a phone."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class KeywordSpotter(nn.Module):
    """Keyword scores of log-mel frames: [batch, mels, frames] -> [batch, keywords]."""

    def __init__(self, mels: int = 20, width: int = 32, keywords: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(mels, width, 5, padding=2),
            nn.Hardswish(),
            nn.Conv1d(width, width, 5, padding=2, groups=4),
            nn.Conv1d(width, width, 1),
            nn.Hardswish(),
        )
        self.head = nn.Linear(width, keywords)

    def forward(self, mel: Tensor) -> Tensor:
        return torch.log_softmax(self.head(self.body(mel).mean(dim=2)), dim=-1)


def half() -> KeywordSpotter:
    """Return the network in eval mode, with float16 weights: its input is float16 too."""
    return KeywordSpotter().half().eval()
