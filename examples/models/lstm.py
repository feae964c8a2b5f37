"""A recurrent classifier of sequences of any length."""

from __future__ import annotations

from torch import Tensor, nn


class SequenceClassifier(nn.Module):
    """Class scores of a sequence: float32[batch, seq, features] -> float32[batch, classes]."""

    def __init__(self, features: int = 12, hidden: int = 24, classes: int = 4) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, signal: Tensor) -> Tensor:
        states, _ = self.lstm(signal)
        return self.head(states.mean(dim=1))
