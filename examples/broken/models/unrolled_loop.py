"""A loop over time, unrolled at the length of the example, under the TorchScript exporter.

Mistake: ``for step in range(x.shape[1])``. The trace holds as many steps as the example had.
In production: of a longer sequence only the beginning is read; a shorter one fails.
Remedy: an operator that loops inside the graph (``nn.GRU``, ``torch.cumsum``,
``torch._higher_order_ops.scan``), or export at the one length that is used.
"""

from __future__ import annotations

from torch import Tensor, nn


class Reader(nn.Module):
    """The last state of a recurrent cell: float32[batch, seq, 8] -> float32[batch, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 16)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state
