"""Which columns of an output were open nearly wherever they were looked at: in a sum none is missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import Mask

# A column with this share of its elements open was hardly ever compared; by chance none is.
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class OpenColumn:
    """A place along the last axis of an output of so many axes, with its ``open`` elements of all."""

    axes: int
    index: int
    open: int
    of: int

    def __str__(self) -> str:
        return (
            f"[{', '.join([':'] * (self.axes - 1) + [str(self.index)])}] ({self.open} of {self.of})"
        )


@dataclass
class LeftOpen:
    """How often each place along the last axis was open, by the axes of an output and their last size."""

    _open: dict[tuple[int, int], Array] = field(default_factory=dict)
    _rows: dict[tuple[int, int], int] = field(default_factory=dict)

    def learn(self, expected: Array, opened: Mask | None) -> None:
        """Take in a check of an output, and which elements of it were ``opened``."""
        if expected.ndim < 2 or not expected.size:
            return
        last = expected.shape[-1]
        key = expected.ndim, last
        self._rows[key] = self._rows.get(key, 0) + expected.size // last
        if opened is not None and opened.shape == expected.shape:
            columns = np.count_nonzero(opened.reshape(-1, last), axis=0)
            self._open[key] = self._open.get(key, 0) + columns

    def columns(self) -> Iterator[OpenColumn]:
        """Yield the columns that were open nearly always, where others beside them were compared."""
        for (axes, last), counts in self._open.items():
            of = self._rows[axes, last]
            places = np.flatnonzero(counts >= _NEARLY_ALL * of)
            if len(places) < last:
                for place in places.tolist():
                    yield OpenColumn(axes, place, int(counts[place]), of)
