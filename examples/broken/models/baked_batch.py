"""A batch size baked into a reshape, under the TorchScript exporter.

Mistake: ``view(int(x.shape[0]), ...)`` writes the batch of the example into the graph, and the
-1 beside it swallows whatever other batch comes.
In production: rows of different users are mixed, or the reshape fails.
Remedy: ``x.view(x.shape[0], ...)`` without ``int``, or ``x.flatten(1)``, or the dynamo exporter.
"""

from __future__ import annotations

from torch import Tensor, nn


class Pooled(nn.Module):
    """Scores of the better half of the groups: float32[batch, 24] -> float32[batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        groups = x.view(int(x.shape[0]), -1, 4)
        return self.head(groups.amax(dim=1))
