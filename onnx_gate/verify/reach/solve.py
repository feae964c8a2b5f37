"""Whole numbers that make a sum of multiples exactly what it is compared with, as a pair's key is.

Of `a * 5000 + b == 21605987` there is one pair among millions, and whole numbers have no gradients. But a
row of each element that is moved by one shows by how much the key grows with it, and a key is solved from
the largest of these down, as a number is written in digits. Remainders are solved as well: what the sum has
beyond is a multiple of the divisor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.leaves import InputLeaves, run_with_gradients
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.stack import Stack
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher

# Keys are made of few numbers, and so many elements of what is compared stand for all of a row.
_MOST_TERMS, _ELEMENTS = 64, 8
# So many values of a term are tried where the rest has to be divided, and of all terms together: which of
# many numbers have a sum may take forever to find.
_TRIES, _MOST_TRIES = 64, 2_000
# Beyond these floats, which distances are, are not whole.
_WHOLE = 2**53


@dataclass(frozen=True)
class Term:
    """By how much a sum grows with one whole number, and how far this may go down and up."""

    slope: int
    down: int
    up: int

    @property
    def reach(self) -> tuple[int, int]:
        """Between what it may change the sum."""
        ends = (self.slope * self.down, self.slope * self.up)
        return min(ends), max(ends)


def solution(terms: Sequence[Term], wanted: int) -> list[int] | None:
    """Return by how much to change each of the terms, the steepest first, so that the sum is changed so.

    ``None`` where nothing does, or it was not found in time.
    """
    return _solution(terms, wanted, iter(range(_MOST_TRIES)))


def _solution(terms: Sequence[Term], wanted: int, left: Iterator[int]) -> list[int] | None:
    if not terms:
        return None if wanted else []
    if wanted % math.gcd(*(each.slope for each in terms)) or next(left, None) is None:
        return None
    first, rest = terms[0], terms[1:]
    low = sum(each.reach[0] for each in rest)
    high = sum(each.reach[1] for each in rest)
    ends = sorted(((wanted - low) / first.slope, (wanted - high) / first.slope))
    least, most = max(math.ceil(ends[0]), first.down), min(math.floor(ends[1]), first.up)
    near = min(max(0, least), most)
    tries = sorted(
        range(max(least, near - _TRIES), min(most, near + _TRIES) + 1), key=lambda n: abs(n - near)
    )
    for change in tries[:_TRIES]:
        found = _solution(rest, wanted - first.slope * change, left)
        if found is not None:
            return [change, *found]
    return None


def solved(
    watcher: Watcher,
    site: DecisionSite,
    row: Mapping[str, Array],
    known: Mapping[str, Domain],
    stack: Stack,
) -> Iterator[dict[str, Array]]:
    """Yield rows like one, of which what is compared is exactly its limit, as far as it grows evenly."""
    places = [(name, at) for name in known if name in stack.axes for at in range(row[name].size)]
    if not 0 < len(places) <= _MOST_TERMS:
        return
    count = 1 + len(places)
    arrays = stack.at(row, np.zeros(count, np.int64))
    ways = []
    for number, (name, at) in enumerate(places, 1):
        flat = arrays[name].reshape(count, -1)
        ways.append(1 if flat[number, at] < known[name].ends[1] else -1)
        flat[number, at] += ways[-1]
    watch = Watch(watcher, frozenset((site,)))
    leaves = InputLeaves()
    given = next(stack.given(arrays))
    if run_with_gradients(watcher.eager, given, {}, watch, leaves=leaves) is None:
        return
    for margin in watch.operands.get(site, ())[:1]:
        if not margin.distance.ndim or len(margin.distance) != count:
            return
        apart = margin.distance.reshape(count, -1).double().numpy()
        for column in np.unique(np.linspace(0, apart.shape[1] - 1, _ELEMENTS).astype(np.int64)):
            made = _made(row, places, ways, apart[:, column], known)
            if made is not None:
                yield made


def _made(
    row: Mapping[str, Array],
    places: Sequence[tuple[str, int]],
    ways: Sequence[int],
    apart: Array,
    known: Mapping[str, Domain],
) -> dict[str, Array] | None:
    """Return a row in which one sum is solved."""
    if not (np.abs(apart) < _WHOLE).all() or (apart != np.rint(apart)).any():
        return None
    terms = []
    for (name, at), way, moved in zip(places, ways, apart[1:], strict=True):
        slope, own = way * int(moved - apart[0]), int(row[name].reshape(-1)[at])
        low, high = known[name].ends
        if slope:
            terms.append((Term(slope, low - own, high - own), name, at))
    terms.sort(key=lambda each: -abs(each[0].slope))
    found = solution([term for term, _, _ in terms], -int(apart[0]))
    if found is None:
        return None
    made = {name: array.copy() for name, array in row.items()}
    for change, (_, name, at) in zip(found, terms, strict=True):
        made[name].reshape(-1)[at] += change
    return made
