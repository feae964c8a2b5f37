"""A scale measured with ``.item()``, under the TorchScript exporter.

Mistake: ``.item()`` leaves the graph: the largest value of the example becomes a constant.
In production: every input is quantised with the scale of the example, and clipped or coarse.
Remedy: keep the scale a tensor: ``scale = x.abs().amax() / 127``.
"""

from __future__ import annotations

from torch import Tensor, nn


class DynamicQuantised(nn.Module):
    """A layer that rounds its input to int8 steps first: float32[batch, 32] -> [batch, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        scale = max(x.abs().max().item(), 1e-6) / 127
        return self.layer((x / scale).round().clamp(-127, 127) * scale)
