"""The values that PyTorch computed, and how to find one by name, by value and by descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_gate.diagnose.values import agree, distance, is_distinctive, kind_of, samples
from onnx_gate.graph.session import Value
from onnx_gate.numerics.precision import eps_of
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.runtimes.base import Array

# How the operator of a traced value begins that is an input of the model.
INPUT = "input "
# Arrays of the same shape compared in full, nearest first.
_NEAREST = 6
# A sample may be this far off, relative to the scale, before an array is not looked at.
_COARSE = 1e-2


@dataclass(frozen=True)
class Input:
    """In the arguments of an operator: the traced value with this number."""

    number: int


@dataclass(frozen=True, eq=False)
class OperatorCall:
    """An operator's call: tensors that are values are ``Input``, others (weights) themselves."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None = None


@dataclass(frozen=True, eq=False)
class TracedValue:
    """A value as PyTorch computed it, or as a graph that agrees with PyTorch did.

    ``operator`` is the one that made it, ``name`` what an exporter calls it, ``parents`` the
    numbers of the values that it was made of. ``distinctive``: no other value is equal by chance;
    ``depends_on_input``: it depends on the model's inputs.
    """

    number: int
    array: Array
    operator: str
    parents: tuple[int, ...] = ()
    name: str | None = None
    module: str | None = None
    source: Source | None = None
    call: OperatorCall | None = None
    distinctive: bool = False
    depends_on_input: bool = True


class Trace:
    """All values, of one run or of several."""

    def __init__(self) -> None:
        self.values: list[TracedValue] = []
        self._named: dict[str, int] = {}
        self._shelves: dict[tuple[str, tuple[int, ...]], _Shelf] = {}
        self._children: list[list[int]] = []

    def __iter__(self) -> Iterator[TracedValue]:
        return iter(self.values)

    def __getitem__(self, number: int) -> TracedValue:
        return self.values[number]

    def add(
        self, array: Array, operator: str, parents: Sequence[int] = (), **more: Any
    ) -> TracedValue:
        """Append a traced value; ``more`` are its other fields."""
        traced = TracedValue(
            len(self.values),
            array,
            operator,
            tuple(parents),
            distinctive=is_distinctive(array),
            depends_on_input=operator.startswith(INPUT)
            or any(self.values[p].depends_on_input for p in parents),
            **more,
        )
        self.values.append(traced)
        self._children.append([])
        for parent in traced.parents:
            self._children[parent].append(traced.number)
        if traced.name is not None:
            self._named.setdefault(traced.name, traced.number)
        self._shelves.setdefault(_shelf_of(array), _Shelf()).add(traced.number, array)
        return traced

    def named(self, name: str) -> TracedValue | None:
        """Return the first traced value of this name."""
        number = self._named.get(name)
        return None if number is None else self.values[number]

    def call(self, number: int, name: str) -> None:
        """Give a traced value another name."""
        self._named[name] = number

    def find(self, array: Value) -> list[TracedValue]:
        """Return the values with this value, nearest first."""
        if not isinstance(array, np.ndarray):
            return []
        shelf = self._shelves.get(_shelf_of(array))
        near = shelf.near(array) if shelf is not None else []
        equal = [
            m
            for m in (self.values[n] for n in near)
            if eps_of(m.array.dtype) == eps_of(array.dtype) and agree(array, m.array)
        ]
        return sorted(equal, key=lambda m: (distance(array, m.array), m.number))

    def find_flat(self, array: Array) -> list[TracedValue]:
        """Return the values with these elements in this order, whatever their shape."""
        flat = array.reshape(-1)
        return [
            m
            for (kind, shape), shelf in self._shelves.items()
            if kind == kind_of(array) and math.prod(shape) == array.size
            for m in (self.values[n] for n in shelf.near(array.reshape(shape)))
            if agree(flat, m.array.reshape(-1))
        ]

    def alike(self, array: Array) -> list[TracedValue]:
        """Return the values of this shape and kind, in order."""
        shelf = self._shelves.get(_shelf_of(array))
        return [self.values[n] for n in shelf.numbers] if shelf is not None else []

    def children(self, number: int, depth: int) -> list[int]:
        """Return the values made of this one in at most ``depth`` steps, in order."""
        heirs: set[int] = set()
        level = {number}
        for _ in range(depth):
            level = {child for parent in level for child in self._children[parent]} - heirs
            heirs |= level
        return sorted(heirs)

    def descendants(self, number: int) -> set[int]:
        """Return every traced value that depends on this one, itself included."""
        heirs, pending = {number}, [number]
        while pending:
            for child in self._children[pending.pop()]:
                if child not in heirs:
                    heirs.add(child)
                    pending.append(child)
        return heirs


class _Shelf:
    """The values of one shape and kind, with some elements of each."""

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
