"""Rows of inputs: side by side along a batch's axes, or where nothing can have more of them pass by pass.

What looks at many rows makes them first axis first. A model of one row answers thousands of them as well
as one with a batch does, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.runtimes.base import Array


@dataclass(frozen=True)
class Stack:
    """How rows become what a module is given.

    ``axes`` are the inputs of which there are rows, each with the axis along which they lie. With
    ``passes`` each row is a whole input, and the axes are those that rows have beside it.
    """

    axes: Mapping[str, int]
    passes: bool = False

    def first(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the first row of what a module is given, with the rows' axis in front."""
        return {n: self._first(n, a) if n in self.axes else a for n, a in arrays.items()}

    def _first(self, name: str, array: Array) -> Array:
        return array[None] if self.passes else moved(array, self.axes[name], 0)[:1]

    def at(self, arrays: Mapping[str, Array], rows: Array | slice) -> dict[str, Array]:
        """Return some rows, in the order in which they are asked for, and as often."""
        return {n: a[rows] if n in self.axes else a for n, a in arrays.items()}

    def joined(self, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return the rows of several as those of one."""
        return {
            n: np.concatenate([part[n] for part in parts]) if n in self.axes else a
            for n, a in parts[0].items()
        }

    def count(self, arrays: Mapping[str, Array]) -> int:
        """Return how many rows there are."""
        return max((len(arrays[name]) for name in self.axes), default=0)

    def given(self, arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Yield what a module is given of rows whose axis is in front: all at once, or each alone."""
        if not self.passes:
            yield {n: moved(a, 0, self.axes.get(n, 0)) for n, a in arrays.items()}
            return
        for row in range(self.count(arrays)):
            yield {n: np.asarray(a[row]) if n in self.axes else a for n, a in arrays.items()}


def moved(array: Array, axis: int, to: int) -> Array:
    """Return an array with an axis at another place."""
    return array if axis == to else np.ascontiguousarray(np.moveaxis(array, axis, to))


def row_at(
    arrays: Mapping[str, Array],
    axes: Mapping[str, int],
    place: tuple[int, ...],
    of: tuple[int, ...],
) -> dict[str, Array]:
    """Return the row of inputs to which a place in a tensor of some shape belongs, one of every axis.

    It belongs to one where an axis of the tensor is as long as the batch; all of the inputs else.
    """
    rows = next((arrays[name].shape[axis] for name, axis in axes.items() if name in arrays), None)
    along = axis_of(of, rows, next(iter(axes.values()), 0))
    if rows is None or along is None:
        return {name: array.copy() for name, array in arrays.items()}
    row = place[along]
    return {
        name: array.take([row], axis=axes[name]) if name in axes else array.copy()
        for name, array in arrays.items()
    }


def axis_of(shape: tuple[int, ...], rows: int | None, usual: int = 0) -> int | None:
    """Return the axis along which so many rows lie: their ``usual`` one, or the first of that length."""
    if usual < len(shape) and shape[usual] == rows:
        return usual
    return next((axis for axis, size in enumerate(shape) if size == rows), None)
