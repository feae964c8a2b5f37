"""Vectors of a module of which a file has a part: biases are cut, and lists may lack what counts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.known_weights import KnownWeights

# Of a vector that is full of one number, so many places are looked at.
_TRIED = 8


def cut_of(array: Array, known: KnownWeights) -> str | None:
    """Return the vector of which a weight has some of the numbers, in a row, and not all."""
    flat = array.reshape(-1)
    if flat.size < max(array.shape):
        return None
    for name in known.vectors():
        own = known.value(name)
        if own is None or own.dtype != flat.dtype or own.size <= flat.size:
            continue
        starts = np.flatnonzero(own[: own.size - flat.size + 1] == flat[0])[:_TRIED]
        if any(np.array_equal(own[at : at + flat.size], flat) for at in starts):
            return name
    return None


def has_all(parts: Iterable[Array], own: Array | None) -> bool:
    """Return whether each number of a vector is in one of its parts."""
    held = np.concatenate([part.reshape(-1) for part in parts])
    return own is not None and bool(np.isin(own, held).all())
