"""Inputs made of lines that a module or its file stores, as a memory has its items.

Whoever keeps items holds a whole line of an input against each: a nearest neighbour is at distance 0, a
memory has the answer, `(x == items).all(-1)` is true. No draw comes to an item, however often each of its
elements is drawn. So what is stored in lines as long as an input's is given as such: each as it is, and
then with one element moved, as who compares all of them but the last is told by that one alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import torch
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drawn import BATCHES, FEW, DrawnInputs
from onnx_gate.verify.reach.passes import CASES
from onnx_gate.verify.reach.purse import Purse
from onnx_gate.verify.reach.sites import MOST_ROWS
from onnx_gate.verify.reach.stack import Stack

Table = torch.Tensor | Array
# An input, and the rows of all that have lines of it.
Rows = tuple[str, Mapping[str, Array]]
# Of an element that is moved by more than rounding: as its constants are, by one part in sixteen.
_STEP = 1 / 16
# Elements of a line that are looked at before all of them are.
_BEGIN = 8


def tables_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield what a module keeps, buffers first: those who keep items do so there."""
    yield from state.buffers(module)
    yield from state.parameters(module)


def lines_of_tables(tables: Iterable[Table], row: Array, domain: Domain) -> list[Array]:
    """Return the different lines of tables that a ``row`` of an input may have, by their lengths.

    They have as much of the row's shape as the table's has in the end. Each table's first come before
    any table's second.
    """
    alike: dict[tuple[int, ...], list[Table]] = {}
    for table in tables:
        with suppress(Exception):  # what cannot be looked at is left out
            shape = _alike(tuple(table.shape), row.shape)
            if math.prod(shape) > 1 and _of_kind(_lines(table, math.prod(shape), 0, 1), row):
                alike.setdefault(shape, []).append(table)
    found = (_in_turn(each, math.prod(shape), row, domain) for shape, each in alike.items())
    return [lines for lines in found if len(lines)]


@dataclass(frozen=True)
class OwnLines:
    """Makes rows of inputs that have such lines, of a case and what is ``known`` of its inputs.

    ``tables`` are those of the files beside the module's, and ``told`` rows that the file tells apart: all
    of these are given.
    """

    inputs: DrawnInputs
    base: Case
    known: Mapping[str, Domain]
    tables: Sequence[Array]
    told: Sequence[tuple[str, Array]] = ()

    def rows(self, module: nn.Module, stack: Stack, purse: Purse) -> Iterator[Rows]:
        """Yield rows for each input that has lines as long as those of a table."""
        one = stack.first(self.base.arrays)
        for name in (n for n in self.known if n in stack.axes and one[n][0].size):
            row, domain = one[name][0], self.known[name]
            tables: Iterator[Table] = itertools.chain(tables_of(module), self.tables)
            for lines in lines_of_tables(tables, row, domain):
                count = self._count(_wanted(lines, row), stack, purse)
                if count:
                    yield name, _filled(one, name, lines, count, domain, stack)

    def apart(self, stack: Stack, purse: Purse) -> Iterator[Rows]:
        """Yield the rows that a file tells apart, as many at once as there is enough for."""
        one = stack.first(self.base.arrays)
        for name, every in self.told:
            if name not in self.known or name not in stack.axes:
                continue
            domain = self.known[name]
            flat = every.reshape(len(every), -1)
            rest = every[((flat >= domain.low) & (flat <= domain.high)).all(axis=1)]
            while len(rest) and (count := self._count(len(rest), stack, purse)):
                rows = stack.at(one, np.zeros(count, np.int64))
                yield name, {**rows, name: np.resize(rest[:count], rows[name].shape)}
                rest = rest[count:] if not stack.passes else rest[:0]

    def _count(self, wanted: int, stack: Stack, purse: Purse) -> int:
        if stack.passes:
            return min(wanted, CASES)
        tried = sorted({n for n in (wanted, *BATCHES, *FEW) if n <= wanted}, reverse=True)
        sizes = self.inputs.largest_batch(self.base, purse.affords, tried)
        rows = self.inputs.batch
        return next((size for dim, size in (sizes or {}).items() if dim in rows), 0)


def _wanted(lines: Array, row: Array) -> int:
    """Return how many rows have each line, and again moved, and each element of one moved both ways."""
    count: int = max(2 * len(lines), 1 + 2 * lines.shape[1])
    places = row.size // int(lines.shape[1])
    return count if places == 1 else 2 * math.ceil(count / (1 + places))


def _filled(
    one: Mapping[str, Array], name: str, lines: Array, rows: int, domain: Domain, stack: Stack
) -> dict[str, Array]:
    """Return so many rows like ``one``, in which an input is made of lines, or each second time has one."""
    arrays = stack.at(one, np.zeros(rows, np.int64))
    made = arrays[name].reshape(rows, -1, lines.shape[1])
    places, first = made.shape[1], 0
    for number in range(rows):
        single = number % 2 == 1 and places > 1
        at = [number // 2 % places] if single else list(range(places))
        made[number, at] = _moved(lines, first + np.arange(len(at)), domain)
        first += len(at)
    return arrays


def _moved(lines: Array, numbers: Array, domain: Domain) -> Array:
    """Return lines by their numbers, which go on behind the last with one element moved."""
    turn, at = numbers // len(lines), numbers % len(lines)
    made: Array = lines[at]
    column = (turn - 1 + at) % lines.shape[1]
    own = made[np.arange(len(made)), column]
    even = (turn + at) % 2 == 0
    if domain.is_float:
        wide = own.astype(np.float64)
        step = np.maximum(np.abs(wide), 1.0) * np.where(even, _STEP, np.finfo(own.dtype).eps)
        other = np.clip(wide + np.where(turn % 4 < 2, step, -step), domain.low, domain.high)
    else:
        low, high = domain.ends
        other = np.clip(own.astype(np.int64) + np.where(even, 1, -1), low, high)
    made[np.arange(len(made)), column] = np.where(turn > 0, other.astype(own.dtype), own)
    return made


def _alike(table: tuple[int, ...], row: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which both end."""
    count = 0
    while count < min(len(table), len(row)) and table[-1 - count] == row[-1 - count]:
        count += 1
    return row[len(row) - count :]


def _of_kind(table: Array, row: Array) -> bool:
    whole = "iu"
    return table.dtype.kind == row.dtype.kind == "f" or (
        table.dtype.kind in whole and row.dtype.kind in whole
    )


def _in_turn(tables: Sequence[Table], width: int, row: Array, domain: Domain) -> Array:
    """Return their different lines of so many elements that an input may have.

    No more are looked at than it takes, as the matrices of a model are as large as it: where most are none
    of an input's, more of them the next time.
    """
    found, low, high = dict[bytes, Array](), 0, -(-MOST_ROWS // len(tables))
    while low < MOST_ROWS:
        blocks = [_lines(table, width, low, high) for table in tables]
        ranked = [each for block in blocks for each in _inside(block, row, domain)]
        for _, line in sorted(ranked, key=itemgetter(0)):
            found.setdefault(line.tobytes(), line)
            if len(found) == MOST_ROWS:
                return np.stack([*found.values()])
        tables = [
            table for table, block in zip(tables, blocks, strict=True) if len(block) == high - low
        ]
        low, high = high, min(MOST_ROWS, 3 * high)
    return np.stack([*found.values()]) if found else np.zeros((0, width), row.dtype)


def _inside(lines: Array, row: Array, domain: Domain) -> Iterator[tuple[int, Array]]:
    """Yield the lines that an input may have, as it has them, and which of all they are."""
    ranks = np.arange(len(lines))
    with np.errstate(invalid="ignore"):
        for part in (slice(_BEGIN), slice(_BEGIN, None)):  # most that are out of it begin so
            some = lines[ranks, part]
            ranks = ranks[((some >= domain.low) & (some <= domain.high)).all(axis=1)]
        yield from zip(ranks.tolist(), lines[ranks].astype(row.dtype), strict=True)


def _lines(table: Table, width: int, low: int, high: int) -> Array:
    """Return some of the lines that stand for all of a table, spread over it."""
    flat = table.reshape(-1, width)
    numbers = np.linspace(0, len(flat) - 1, min(len(flat), MOST_ROWS)).astype(np.int64)[low:high]
    some = flat[numbers]
    return some if isinstance(some, np.ndarray) else to_array(some)
