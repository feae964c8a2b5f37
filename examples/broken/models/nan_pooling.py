"""A broken sensor that one side does not see.

Mistake: trusting NaN to travel. PyTorch's max-pooling passes NaN on, ONNX Runtime's drops it.
In production: the alarm "NaN in the answer: discard" never rings, and the reading is believed.
Remedy: test the input (``torch.isnan(x).any()``) and return the answer as an output of its own.
"""

from __future__ import annotations

from torch import Tensor, nn


class SensorPeaks(nn.Module):
    """Peaks of a signal: float32[batch, 1, 32] -> float32[batch, 4, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool1d(4)
        self.mix = nn.Conv1d(1, 4, 1)

    def forward(self, signal: Tensor) -> Tensor:
        return self.mix(self.pool(signal))
