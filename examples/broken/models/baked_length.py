"""A length turned into a Python number, under the TorchScript exporter.

Mistake: ``int(frames.shape[1])``. Tracing records what tensors do; a Python number is a constant
of the trace, here the length of the example.
In production: a clip twice as long as the example has a mean twice too large.
Remedy: divide by ``frames.shape[1]`` itself or call ``frames.mean(1)``; or use the dynamo exporter,
which follows Python numbers too.
"""

from __future__ import annotations

from torch import Tensor, nn


class ClipEmbedder(nn.Module):
    """The mean of embedded frames: float32[batch, frames, 16] -> float32[batch, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, frames: Tensor) -> Tensor:
        return self.frame(frames).sum(dim=1) / int(frames.shape[1])
