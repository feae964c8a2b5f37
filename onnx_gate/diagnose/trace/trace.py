"""The values that PyTorch computed, and how to find one by name, by value and by descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_gate.diagnose.graph.values import (
    Value,
    agree,
    distance,
    is_distinctive,
    kind_of,
    samples,
)
from onnx_gate.numerics.precision import eps_of
from onnx_gate.report.model import Source
from onnx_gate.runtimes.base import Array

# How the operator of a moment begins that is an input of the model.
INPUT = "input "
# Arrays of the same shape compared in full, nearest first.
_NEAREST = 6
# A sample may be this far off, relative to the scale, before an array is not looked at.
_COARSE = 1e-2


@dataclass(frozen=True)
class Input:
    """In the arguments of an operator: the moment with this number."""

    number: int


@dataclass(frozen=True, eq=False)
class Call:
    """An operator's call: tensors that are moments are ``Input``, others (weights) themselves."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: int | None = None


@dataclass(frozen=True, eq=False)
class TracedValue:
    """A value as PyTorch computed it, or as a graph that agrees with PyTorch did.

    ``operator`` is the one that made it, ``name`` what an exporter calls it, ``parents`` the
    numbers of the moments that it was made of. ``distinctive``: no other value is equal by chance;
    ``depends_on_input``: it depends on the model's inputs.
    """

    number: int
    array: Array
    operator: str
    parents: tuple[int, ...] = ()
    name: str | None = None
    module: str | None = None
    source: Source | None = None
    call: Call | None = None
    distinctive: bool = False
    depends_on_input: bool = True


class Trace:
    """All moments, of one run or of several."""

    def __init__(self) -> None:
        self.moments: list[TracedValue] = []
        self._named: dict[str, int] = {}
        self._shelves: dict[tuple[str, tuple[int, ...]], _Shelf] = {}
        self._children: list[list[int]] = []

    def __iter__(self) -> Iterator[TracedValue]:
        return iter(self.moments)

    def __getitem__(self, number: int) -> TracedValue:
        return self.moments[number]

    def add(
        self, array: Array, operator: str, parents: Sequence[int] = (), **more: Any
    ) -> TracedValue:
        """Append a moment; ``more`` are its other fields."""
        moment = TracedValue(
            len(self.moments),
            array,
            operator,
            tuple(parents),
            distinctive=is_distinctive(array),
            depends_on_input=operator.startswith(INPUT)
            or any(self.moments[p].depends_on_input for p in parents),
            **more,
        )
        self.moments.append(moment)
        self._children.append([])
        for parent in moment.parents:
            self._children[parent].append(moment.number)
        if moment.name is not None:
            self._named.setdefault(moment.name, moment.number)
        self._shelves.setdefault(_shelf_of(array), _Shelf()).add(moment.number, array)
        return moment

    def named(self, name: str) -> TracedValue | None:
        """Return the first moment of this name."""
        number = self._named.get(name)
        return None if number is None else self.moments[number]

    def call(self, number: int, name: str) -> None:
        """Give a moment another name."""
        self._named[name] = number

    def find(self, array: Value) -> list[TracedValue]:
        """Return the moments with this value, nearest first."""
        if not isinstance(array, np.ndarray):
            return []
        shelf = self._shelves.get(_shelf_of(array))
        near = shelf.near(array) if shelf is not None else []
        found = [
            m
            for m in (self.moments[n] for n in near)
            if eps_of(m.array.dtype) == eps_of(array.dtype) and agree(array, m.array)
        ]
        return sorted(found, key=lambda m: (distance(array, m.array), m.number))

    def find_flat(self, array: Array) -> list[TracedValue]:
        """Return the moments with these elements in this order, whatever their shape."""
        flat = array.reshape(-1)
        return [
            m
            for (kind, shape), shelf in self._shelves.items()
            if kind == kind_of(array) and math.prod(shape) == array.size
            for m in (self.moments[n] for n in shelf.near(array.reshape(shape)))
            if agree(flat, m.array.reshape(-1))
        ]

    def alike(self, array: Array) -> list[TracedValue]:
        """Return the moments of this shape and kind, in order."""
        shelf = self._shelves.get(_shelf_of(array))
        return [self.moments[n] for n in shelf.numbers] if shelf is not None else []

    def children(self, number: int, depth: int) -> list[int]:
        """Return the moments made of this one in at most ``depth`` steps, in order."""
        found: set[int] = set()
        level = {number}
        for _ in range(depth):
            level = {child for parent in level for child in self._children[parent]} - found
            found |= level
        return sorted(found)

    def descendants(self, number: int) -> set[int]:
        """Return every moment that depends on this one, itself included."""
        found, pending = {number}, [number]
        while pending:
            for child in self._children[pending.pop()]:
                if child not in found:
                    found.add(child)
                    pending.append(child)
        return found


class _Shelf:
    """The moments of one shape and kind, with some elements of each."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._rows: list[Array] = []
        self._table: Array | None = None

    def add(self, number: int, array: Array) -> None:
        self.numbers.append(number)
        self._rows.append(samples(array) if kind_of(array) != "s" else np.zeros(0))
        self._table = None

    def near(self, array: Array) -> list[int]:
        if self._table is None:
            self._table = np.stack(self._rows)
        if self._table.shape[1] == 0:
            return self.numbers[:_NEAREST]
        row = samples(array)
        with np.errstate(all="ignore"):
            off = np.where(
                (self._table == row) | (np.isnan(self._table) & np.isnan(row)),
                0.0,
                np.abs(self._table - row),
            )
            finite = np.abs(np.where(np.isfinite(self._table), self._table, 0.0))
            scale = finite.max(axis=1) if eps_of(array.dtype) else np.zeros(len(self.numbers))
            worst = np.where(np.isnan(off), np.inf, off).max(axis=1)
        order = np.argsort(worst, kind="stable")[: 2 * _NEAREST]
        return [self.numbers[i] for i in order if worst[i] <= _COARSE * max(scale[i], 1e-30)][
            :_NEAREST
        ]


def _shelf_of(array: Array) -> tuple[str, tuple[int, ...]]:
    return kind_of(array), array.shape
