"""Whether an array has the very numbers of another in other places: no training leaves them so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_gate.diagnose.values import is_distinctive
from onnx_gate.runtimes.base import Array
from onnx_gate.text import listed

# Rows that are named, and axes in words.
_SHOWN = 3
_AXES = {0: "row", 1: "column"}


@dataclass(frozen=True)
class Reordered:
    """An array that is another one with its parts along ``axis`` in another order, or its numbers.

    Part ``i`` is the other's part ``order[i]``; without an axis it is the numbers that have no order
    by parts.
    """

    axis: int | None
    order: tuple[int, ...]

    @property
    def moved(self) -> tuple[int, ...]:
        """The parts that are not where they belong."""
        return tuple(at for at, of in enumerate(self.order) if at != of)

    def sentence(self) -> str:
        """Say in which order it has them."""
        if self.axis is None:
            return "the same numbers in another order"
        count, part = len(self.order), _AXES.get(self.axis, f"part along axis {self.axis}")
        parts = part.replace("part", "parts") if self.axis > 1 else f"{part}s"
        if self.order == tuple(reversed(range(count))):
            return f"the same {parts} in reverse order"
        by = self.order[0]
        if self.order == tuple((at + by) % count for at in range(count)):
            on = by if by <= count // 2 else by - count
            which = {1: "the next one", -1: "the one before"}
            far = f"the one {abs(on)} {'further on' if on > 0 else 'before'}"
            return f"each {part} is {which.get(on, far)}"
        moved = self.moved
        if len(moved) == count:
            return f"the same {parts} in another order"
        named = listed(list(map(str, moved)), _SHOWN)
        return f"{part if len(moved) == 1 else parts} {named} of {count} in each other's places"


def reordered(stored: Array, right: Array) -> Reordered | None:
    """Return in which order ``stored`` has what ``right`` has, ``None`` where it has other numbers."""
    if stored.shape != right.shape or stored.size < 2 or not is_distinctive(right):
        return None
    right = right.astype(stored.dtype)
    if np.array_equal(stored, right) or not np.array_equal(
        np.sort(stored, axis=None), np.sort(right, axis=None)
    ):
        return None
    for axis in range(stored.ndim):
        order = _order(np.moveaxis(stored, axis, 0), np.moveaxis(right, axis, 0))
        if order is not None:
            return Reordered(axis, order)
    return Reordered(None, ())


def _order(parts: Array, own: Array) -> tuple[int, ...] | None:
    """Return which part of ``own`` each part is, equal ones where they belong where they may."""
    places: dict[bytes, list[int]] = {}
    for at, part in enumerate(own):
        places.setdefault(part.tobytes(), []).append(at)
    order: list[int | None] = [None] * len(parts)
    keys = [part.tobytes() for part in parts]
    for at, key in enumerate(keys):
        if at in places.get(key, ()):
            order[at] = at
            places[key].remove(at)
    for at, key in enumerate(keys):
        if order[at] is None:
            if not places.get(key):
                return None
            order[at] = places[key].pop(0)
    return tuple(at for at in order if at is not None)
