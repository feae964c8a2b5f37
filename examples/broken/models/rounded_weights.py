"""Weights that passed through bfloat16 on their way.

Mistake: an export script takes the weights from a bfloat16 copy and writes them as float32 again.
The file says float32, is as large as it should be, and has eight bits of precision.
In production: everything is a little wrong (some 0.3 %), and no layer stands out.
Remedy: export from the float32 checkpoint; if rounding is meant, say so with a tolerance.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn


class Ranker(nn.Module):
    """The relevance of a pair: float32[batch, 16] twice -> float32[batch]."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(16, 48), nn.SiLU(), nn.Linear(48, 12))

    def forward(self, query: Tensor, document: Tensor) -> Tensor:
        return (self.tower(query) * self.tower(document)).sum(dim=-1)


def export(module: Ranker, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file from a copy of the module that was bfloat16 for a moment."""
    rounded = deepcopy(module).to(torch.bfloat16).to(torch.float32)
    shapes = {name: {0: "batch"} for name in example}
    torch.onnx.export(
        rounded, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
