"""Softmax over the wrong axis.

Mistake: a graph is patched for another runtime, and its Softmax gets axis 1, the default of old
opsets, where the model normalised the last axis.
In production: the attention no longer sums to one over what is read, but over the heads.
Remedy: never patch an attribute without comparing the result: shapes and names stay the same.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Two heads of attention: float32[batch, seq, 16] -> float32[batch, seq, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        weights = torch.softmax(q @ k.transpose(-2, -1) / 8**0.5, dim=-1)
        return (weights @ v).transpose(1, 2).flatten(2)


def export(module: Attention, example: dict[str, Tensor], path: Path) -> None:
    """Write the ONNX file and patch its Softmax."""
    shapes = {"x": {0: "batch", 1: "seq"}}
    torch.onnx.export(
        module, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "Softmax":
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("axis", 1))
    onnx.save(model, path)
