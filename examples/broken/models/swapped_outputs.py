"""Two outputs of one shape, in the wrong order.

Mistake: an export script flattens a dict of outputs in sorted order and names them in the order
in which the model made them.
In production: the start of an answer is where its end should be; nothing fails, for the shapes are
the same.
Remedy: take the names and the values from the same iteration.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn


class SpanFinder(nn.Module):
    """Where an answer starts and ends: float32[batch, seq, 24] -> two of float32[batch, seq]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(24, 2)

    def forward(self, hidden: Tensor) -> dict[str, Tensor]:
        start, end = self.head(hidden).unbind(-1)
        return {"start": start, "end": end}


class Flat(nn.Module):
    """The outputs of a module as a tuple, sorted by name."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor) -> tuple[Tensor, ...]:
        outputs = self.inner(hidden)
        return tuple(outputs[name] for name in sorted(outputs))


def export(module: SpanFinder, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file, with named outputs."""
    torch.onnx.export(
        Flat(module).eval(),
        (),
        path,
        kwargs=example,
        dynamo=True,
        output_names=["start", "end"],
        dynamic_shapes={"hidden": {0: "batch", 1: "seq"}},
        verbose=False,
    )
