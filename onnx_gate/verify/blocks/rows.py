"""Heads that are larger than the layers of their model, taken apart by rows of their weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from onnx_gate.verify.blocks.stored import Stored

WEIGHT, BIAS = "weight", "bias"


class InRows(nn.Module):
    """A linear layer as several, each with some of its rows: what they return lies side by side."""

    def __init__(self, parts: Mapping[int, nn.Linear]) -> None:
        super().__init__()
        for row, part in parts.items():
            self.add_module(f"rows_{row}", part)

    @property
    def weight(self) -> torch.Tensor:
        """All rows, for what reads them beside."""
        return torch.cat([part.get_parameter(WEIGHT) for part in self.children()])

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of all rows."""
        parts = [part._parameters[BIAS] for part in self.children()]
        return None if parts[0] is None else torch.cat(parts)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the whole layer does."""
        return torch.cat([part(x) for part in self.children()], -1)


def in_rows(
    module: nn.Module, paths: Sequence[str], most: int, stored: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Take linear layers of a module without values apart, and return where their parts' weights lie.

    ``paths`` are theirs, ``stored`` has their weights by name. A part has rows of at most ``most`` bytes.
    """
    places: dict[str, Stored] = {}
    for path in paths:
        whole = module.get_submodule(path)
        assert isinstance(whole, nn.Linear)
        row = whole.in_features + (whole.bias is not None)
        step = max(1, most // (whole.weight.dtype.itemsize * row))
        parts = {}
        for first in range(0, whole.out_features, step):
            count = min(step, whole.out_features - first)
            part = nn.Linear(
                whole.in_features,
                count,
                whole.bias is not None,
                device="meta",
                dtype=whole.weight.dtype,
            )
            parts[first] = part.train(whole.training)
            for name in part._parameters:
                if part._parameters[name] is not None:
                    rows = _rows(stored[f"{path}.{name}"], first, count)
                    places[f"{path}.rows_{first}.{name}"] = rows
        owner, _, key = path.rpartition(".")
        setattr(module.get_submodule(owner), key, InRows(parts).train(whole.training))
    return places


def _rows(stored: Stored, first: int, count: int) -> Stored:
    size = stored.nbytes // stored.shape[0]
    return replace(
        stored,
        offset=stored.offset + first * size,
        nbytes=count * size,
        shape=(count, *stored.shape[1:]),
    )
