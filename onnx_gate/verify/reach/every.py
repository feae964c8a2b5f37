"""Every value of integer inputs, every combination of small ones, and every row of what nobody knows.

A table that is the module's to the bit needs no row to be read where an input points at it. One that is
not, as where an exporter has multiplied it by a scale, may have one wrong row among a million: all of them
are read, by the values of the inputs where these point at it, and by draws of them where arithmetic lies
between, until none is left. That arithmetic may be wrong where the table is right, and so may whatever else
is decided about the whole numbers that it makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes, elements
from onnx_gate.verify.inputs.suites.base import Draft
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drawn import BATCHES, FEW, DrawnInputs
from onnx_gate.verify.reach.extremes import extreme_rows, lines_of
from onnx_gate.verify.reach.purse import LARGEST, Purse
from onnx_gate.verify.reach.sites import MOST_ROWS
from onnx_gate.verify.reach.stack import moved
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reach.whole import MOST_COMBINATIONS, enumerated

# Cases of one kind that a report can still list.
_MOST_CASES = 24
# The values that sixteen cases hold, of one number each.
_MOST_UNKNOWN = 16 * LARGEST


@dataclass(frozen=True)
class Every:
    """Makes them from a case; ``unknown``: the file has weights that are none of the module's."""

    inputs: DrawnInputs
    watcher: Watcher
    base: Case
    known: Mapping[str, Domain]
    unknown: bool

    def values(self, purse: Purse) -> Iterator[Draft]:
        """Yield every value of integer inputs, and of several small ones every combination."""
        most = _MOST_UNKNOWN if self.unknown else MOST_ROWS
        spans = {
            name: domain.ends[1] - domain.ends[0] + 1
            for name, domain in self.known.items()
            if not domain.is_float and domain.high - domain.low < most
        }
        if not spans:
            return
        first, combinations = 0, _MOST_UNKNOWN if self.unknown else MOST_COMBINATIONS
        for number in range(_MOST_CASES):
            rows = {max(spans.values()), *BATCHES}
            if self.unknown:
                rows |= {min(math.prod(spans.values()), _MOST_UNKNOWN), self._most_rows}
            sizes = self._largest_batch(purse, rows)
            if sizes is None:
                return
            arrays = self.inputs.beside(self.base, self.known, sizes, ("every", number), 1)
            fronts = {name: moved(arrays[name], self.inputs.axes.get(name, 0), 0) for name in spans}
            shapes = {name: array.shape for name, array in fronts.items()}
            domains = {name: self.known[name] for name in spans}
            made, rest = enumerated(domains, spans, shapes, first, combinations)
            made = {n: moved(array, 0, self.inputs.axes.get(n, 0)) for n, array in made.items()}
            yield Draft(("every", str(number)), arrays | made, sizes)
            first += rest.made
            if first >= rest.of:
                return

    def rows(self, purse: Purse) -> Iterator[Draft]:
        """Yield draws while they show more: rows that may be others in the file, and whole numbers."""
        left = self._left()
        for number in range(_MOST_CASES):
            sizes = self._largest_batch(purse, {self._most_rows, *BATCHES}) if left else None
            if sizes is None:
                return
            key = ("every", "row", str(number))
            yield Draft(key, self.inputs.beside(self.base, self.known, sizes, key, 1), sizes)
            before, left = left, self._left()
            if left == before:
                return

    def extremes(self, purse: Purse) -> Iterator[Draft]:
        """Yield the rows of tables that are unlike the others, any two of them next to each other.

        Of small tables most rows are, and those meet wherever anything is drawn.
        """
        for name, domain in self.known.items():
            rows = extreme_rows(self.watcher.eager.module, domain) if not domain.is_float else ()
            if not len(rows) or 2 * len(rows) > domain.high - domain.low:
                continue
            shape = self.base.arrays[name].shape
            lines = lines_of(np.asarray(rows), shape[-1] if len(shape) > 1 else 1)
            most = max(*FEW, math.ceil(len(lines) / max(1, math.prod(shape[1:-1]))))
            sizes = self._largest_batch(purse, {most, *(n for n in (*BATCHES, *FEW) if n < most)})
            if sizes is not None:
                arrays = self.inputs.beside(self.base, self.known, sizes, ("rows", name), 1)
                own = np.resize(lines, arrays[name].shape)
                yield Draft(("rows", name), arrays | {name: own.astype(arrays[name].dtype)}, sizes)

    @property
    def owed(self) -> bool:
        """Whether there is something that the file may do otherwise, however short the run is."""
        return self.unknown or bool(self.watcher.besides) or self._left(tables=True) > 0

    def _left(self, tables: bool = False) -> int:
        """Return how much draws may still show, of ``tables`` alone or of what else is computed as well.

        Of a table that is the module's, the rows do not count which an input itself points at.
        """
        seen = [(site, s) for site, s in self.watcher.seen.items() if self.unknown or s.computed]
        rows = sum(int((~s.rows).sum()) for site, s in seen if site.is_table and s.rows is not None)
        whole = (s.left(site) for site, s in seen if s.computed and s.whole and not site.has_rows)
        return rows if tables else rows + sum(map(len, whole))

    @property
    def _most_rows(self) -> int:
        """How many rows one batch may have."""
        one = {dim: 1 if dim in self.inputs.batch else n for dim, n in self.base.sizes.items()}
        return max(1, LARGEST // max(1, elements(self.inputs.spec.inputs, one)))

    def _largest_batch(self, purse: Purse, rows: set[int]) -> Sizes | None:
        return self.inputs.largest_batch(self.base, purse.affords, sorted(rows, reverse=True))
