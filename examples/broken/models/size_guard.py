"""A branch on the batch size.

Mistake: ``if x.shape[0] > 4``. The exporter follows the branch that the example's size takes and
notes a guard ("batch <= 4") that the ONNX file has no place for.
In production: large batches, which only the server sees, are computed as small ones.
Remedy: do one thing at all sizes, or ship a file for each branch.
"""

from __future__ import annotations

from torch import Tensor, nn


class Centred(nn.Module):
    """Scores of rows, centred where there are many: float32[batch, 16] -> float32[batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            x = x - x.mean(dim=0)
        return self.head(x)
