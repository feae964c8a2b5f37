"""Every value of integer inputs, every combination of small ones, and every row of what nobody knows.

A table that is the module's to the bit needs no row to be read where an input points at it. One that is
not, as where an exporter has multiplied it by a scale, may have one wrong row among a million: all of them
are read, by the values of the inputs where these point at it, and by draws of them where arithmetic lies
between, until none is left. That arithmetic may be wrong where the table is right, and so may whatever else
is decided about the whole numbers that it makes.

That a table is the module's says nothing of what is made of its rows either. A class of 7 among 99,999,
or the one row far from all others, no draw reads; whoever clips at 6 is told by it. So those rows are read
that are an end of a column, of some columns of wide tables, and the longest and the shortest. And of two
tables that are the same but for few rows, as weights and their running average are, these: where a file has
one in the place of the other they alone tell. Any two of them stand next to each other: what overflows may
be their sum. Each table is read once, and once more for each that it is held against.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import Stream
from onnx_gate.verify.inputs.sizes import Sizes, elements
from onnx_gate.verify.inputs.suites.base import Draft
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drawn import BATCHES, FEW, DrawnInputs
from onnx_gate.verify.reach.purse import LARGEST, Purse
from onnx_gate.verify.reach.sites import MOST_ROWS
from onnx_gate.verify.reach.stack import moved
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reach.whole import MOST_COMBINATIONS, Whole, enumerated

# Of the columns of a wide table so many have their ends read.
_COLUMNS = 8
# Of the longest and of the shortest rows so many.
_LENGTHS = 4
# Of rows in which two tables differ so many; where more do, ordinary draws read one of them.
_OTHERS = 16
# So many tables of one shape are held against each other: a table, its average and those of two towers.
_ALIKE = 4
# Larger tables are as large as all that a pass may keep.
_MOST_NUMBERS = 2**27
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


def extreme_rows(module: nn.Module, domain: Domain) -> Whole:
    """Return the numbers of such rows, of all tables that an input of a domain may be the rows of."""
    low, high = domain.ends
    found: dict[int, None] = {}
    tables: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    for _, table in state.tensors(module):
        # What cannot be looked at is left out.
        with suppress(Exception):
            rows = len(table) if table.ndim else 0
            if high < rows <= 2 * (high + 1) and low >= 0 and table.numel() <= _MOST_NUMBERS:
                own = table.detach()[low : high + 1]
                found.update(dict.fromkeys(int(row) + low for row in _ends(own)))
                tables.setdefault((own.dtype, *own.shape), []).append(own)
    for alike in tables.values():
        for one, other in itertools.combinations(alike[:_ALIKE], 2):
            with suppress(Exception):
                found.update(dict.fromkeys(row + low for row in _apart(one, other)))
    return np.array(list(found), np.int64)


def lines_of(rows: Whole, width: int) -> Whole:
    """Return lines of so many rows, ``[lines, width]``, in which any two stand next to each other.

    With steps of each length around a circle of a prime number of places, from line to line; in an order
    in which a part of the lines has steps of all lengths.
    """
    if width < 2:
        return rows[:, None]
    count = next(n for n in itertools.count(max(2, len(rows))) if all(n % d for d in range(2, n)))
    each = math.ceil(count / (width - 1))
    line = Stream("lines").words((count - 1) * each).argsort(kind="stable")[:, None]
    places = (line % each * (width - 1) + np.arange(width)) * (1 + line // each)
    lines: Whole = np.resize(rows, count)[places % count]
    return lines


def _apart(one: torch.Tensor, other: torch.Tensor) -> list[int]:
    """Return the rows in which two tables differ, where these are few."""
    rows: list[int] = (one != other).reshape(len(one), -1).any(1).nonzero().reshape(-1).tolist()
    return rows if len(rows) <= _OTHERS else []


def _ends(table: torch.Tensor) -> list[int]:
    values = table.reshape(len(table), -1)
    columns = np.unique(np.linspace(0, values.shape[1] - 1, _COLUMNS).astype(np.int64))
    some = values[:, torch.from_numpy(columns)].float()
    rows = [*some.argmax(0).tolist(), *some.argmin(0).tolist()]
    lengths = torch.linalg.vector_norm(values.float(), dim=1)
    count = min(_LENGTHS, len(lengths))
    for largest in (True, False):
        rows += lengths.topk(count, largest=largest).indices.tolist()
    return [row for row in rows if math.isfinite(float(lengths[row]))]
