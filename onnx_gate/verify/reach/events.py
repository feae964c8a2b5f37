"""Rows in which something happens twice, as far apart as the code names, or lasts as long.

A window of 30 and one of 31 differ where two things are exactly 30 places apart and nothing else is near:
what is drawn at random has that in one row of hundreds, where everything else is ordinary in none.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import Stream, numpy_dtype
from onnx_gate.verify.reach.domain import Domain

# One place less and one more than a number are on its other side, whichever that is.
_BESIDE = (-1, 0, 1)
_VALUES = ("high", "low", "shared")
# At both places in every input, at one of them in every second input, or from one to the other.
_LAYOUTS = ("apart", "first", "second", "lasting")
ROWS = len(_BESIDE) * len(_VALUES) * len(_LAYOUTS)


def with_events(
    arrays: Mapping[str, Array],
    known: Mapping[str, Domain],
    along: Mapping[str, int],
    axes: Mapping[str, int],
    numbers: Collection[int],
) -> dict[str, Array]:
    """Return drawn inputs with events put in, row by row: ``ROWS`` of them for each of the numbers.

    ``along`` has of each input that is changed the axis on which its places lie, ``axes`` that of rows.
    """
    made = dict(arrays)
    for turn, (name, axis) in enumerate(along.items()):
        array = np.array(arrays[name])
        rows = np.moveaxis(array, (axes[name], axis), (0, 1))
        length = rows.shape[1]
        for number, (apart, value, layout) in enumerate(_each(numbers)):
            if number >= len(rows) or not 0 < apart < length:
                continue
            # At the beginning, and at the end.
            begin = 0 if number % 2 else length - 1 - apart
            rows[number, _places(layout, begin, apart, turn)] = _event(known[name], value, number)
        made[name] = array
    return made


def _each(numbers: Collection[int]) -> Iterator[tuple[int, str, str]]:
    """Yield for each row how far apart, what, and how."""
    for number in sorted(numbers):
        for beside, value, layout in itertools.product(_BESIDE, _VALUES, _LAYOUTS):
            yield number + beside, value, layout


def _places(layout: str, begin: int, apart: int, turn: int) -> slice:
    """Return the places of an input, the ``turn``-th, at which something happens."""
    if layout == "lasting":
        return slice(begin, begin + apart)
    if layout == "apart":
        return slice(begin, begin + apart + 1, apart)
    place = begin + apart * ((turn + (layout == "second")) % 2)
    return slice(place, place + 1)


def _event(domain: Domain, value: str, row: int) -> float | int:
    """Return an end of a domain, or what inputs of one domain have in common."""
    low, high = (domain.low, domain.high) if domain.is_float else domain.ends
    if value != "shared":
        return high if value == "high" else low
    source = Stream("events", str(domain.low), str(domain.high), str(row))
    if domain.is_float:
        return float(low + (high - low) * source.uniform(1)[0])
    whole = low + int(source.words(1)[0]) % (int(high) - int(low) + 1)
    return int(np.asarray(whole).astype(numpy_dtype(domain.spec.dtype)))
