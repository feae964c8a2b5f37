"""Whole numbers and truths for inputs, in the ways in which modules decide about these.

They are whole throughout: as floating-point numbers identifiers and nanoseconds are not told apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import Stream, draw, mixed, numpy_dtype
from onnx_gate.verify.reach.domain import Domain

Whole = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

# Of so many combinations of codes each is tried; so are the rows of a table of that length.
MOST_COMBINATIONS = 4096
# How many of the bits of a row are set, way by way: then a single one, or all but one. In the last ways
# each is another one than the bit before it that often, so that there are long stretches of both.
_SHARES = (1 / 2, 1 / 8, 7 / 8, 1 / 16, 15 / 16, 1 / 64, 63 / 64)
_CHANGES = (1 / 4, 1 / 16, 1 / 64, 15 / 16)
# What is that far apart is the same number in 8, 16 or 32 bits.
_NARROWER = (2**8, 2**16, 2**32)


@dataclass(frozen=True)
class Enumeration:
    """How many combinations of values were made, of how many there are."""

    made: int
    of: int


def enumerated(
    known: Mapping[str, Domain],
    spans: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    first: int,
    most: int = MOST_COMBINATIONS,
) -> tuple[dict[str, Array], Enumeration]:
    """Return integer inputs in which values follow each other from ``first`` on, round and round.

    Rows of a few columns count as the digits of a number do, so that all combinations come; where
    these are more than ``most``, each input goes through its own values element by element.
    """
    widths = {name: int(np.prod(shape[1:], dtype=np.int64)) for name, shape in shapes.items()}
    rows = {shape[0] if shape else 1 for shape in shapes.values()}
    total = math.prod(spans[name] ** min(width, 16) for name, width in widths.items())
    arrays: dict[str, Array] = {}
    if len(rows) == 1 and max(widths.values()) <= 16 and total <= most:
        counted, stride = first + np.arange(max(rows), dtype=np.int64), 1
        for name, shape in shapes.items():
            columns = []
            for _ in range(widths[name]):
                columns.append(counted // stride % spans[name])
                stride *= spans[name]
            arrays[name] = _shifted(known[name], np.stack(columns, axis=-1).reshape(shape))
        return arrays, Enumeration(max(rows), total)
    for name, shape in shapes.items():
        counted = first + np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
        arrays[name] = _shifted(known[name], (counted % spans[name]).reshape(shape))
    return arrays, Enumeration(min(a.size for a in arrays.values()), max(spans.values()))


def _shifted(domain: Domain, values: Array) -> Array:
    shifted: Array = (values + domain.ends[0]).astype(numpy_dtype(domain.spec.dtype))
    return shifted


def integers(
    domain: Domain, rows: int, axes: tuple[int, ...], ways: Whole, source: Stream, shared: Stream
) -> Whole:
    """Return whole numbers, ``[rows, prod(axes)]``, of each row in one of the ways."""
    width, (low, high) = math.prod(axes), domain.ends
    spec = replace(domain.spec, range=(low, high))
    count = rows * width
    drawn = draw(spec, (rows, width), source).astype(np.int64)
    even = (source.words(count) & np.uint64(1)).astype(bool).reshape(rows, width)
    picked = _picked([int(each) for each in domain.constants], drawn, source)
    alike = np.repeat(draw(spec, (rows, 1), shared).astype(np.int64), max(width, 1), axis=1)
    alike = alike[:, :width]
    small = np.rint(8 * source.uniform(count)).astype(np.int64).reshape(rows, width)
    few = np.minimum(low + small, high)
    made = (
        np.where(even, picked, drawn),
        drawn,
        few,
        np.where(even, few, drawn),
        np.where(even, alike, drawn),
        alike,
        np.sort(drawn, axis=1),
        _apart(domain, alike, even, source),
        drawn,
        np.where(even, low, high),
        picked,
        # Neighbours, which floats of as many digits do not tell apart.
        np.minimum(alike + even, high),
        np.clip(low + _before(rows, axes), low, high),
    )
    return np.choose(ways[:, None], made) if width else drawn


def bits(rows: int, axes: tuple[int, ...], ways: Whole, source: Stream) -> Truths:
    """Return truths, ``[rows, prod(axes)]``: rare in some rows, mostly so in others, and in stretches."""
    width = math.prod(axes)
    drawn = source.uniform(rows * width).reshape(rows, width)
    one = 1 / max(width, 2)
    shares = np.array([*_SHARES, one, 1 - one, *_CHANGES])
    changes = drawn < shares[ways][:, None]
    stretches = np.logical_xor.accumulate(changes, axis=1) if width else changes
    made = np.where(ways[:, None] < len(shares) - len(_CHANGES), changes, stretches)
    return np.asarray(mixed(made), np.bool_)


def _before(rows: int, axes: tuple[int, ...]) -> Whole:
    """Return the place of each element less one, and for every second row the place itself.

    Numbers of things that follow each other: each one's parent is the one before, and of a list of edges
    all make one path. What goes from one to the next has the longest way then.
    """
    if not axes:
        return np.arange(rows)[:, None] - 1
    place = np.broadcast_to(np.arange(axes[-1]), axes).reshape(1, -1)
    second = np.arange(rows)[:, None] % 2
    if len(axes) > 1:
        inner = np.arange(axes[-2])[:, None] % 2
        second = np.broadcast_to(inner, axes).reshape(1, -1)
    return np.asarray(np.broadcast_to(place - 1 + second, (rows, math.prod(axes))), np.int64)


def _apart(domain: Domain, first: Whole, chosen: Truths, source: Stream) -> Whole:
    """Return integers that follow each other at distances which are constants of the module, or are equal.

    Or are equal to a narrower type, or leave one remainder. ``first``, ``[rows, width]``, is where each row
    begins: one of another input with the same domain, too.
    """
    low, high = domain.ends
    span = high - low
    distances = (*map(int, domain.constants), *_NARROWER)
    steps = [each for each in distances if 0 < abs(each) <= span / 2]
    if not steps and not domain.divisors:
        return first
    near = _picked(steps, first, source)
    # Beyond its end a domain begins anew.
    apart = np.cumsum(np.where(chosen, near, 0), axis=1) % (span + 1)
    within: Whole = low + (first - low + apart) % (span + 1)
    divisors = np.array([each for each in domain.divisors if each <= span / 2], np.int64)
    if divisors.size:
        # Of every second row all leave one remainder, x and x + d and x + 2 d: they share a bucket.
        own = divisors[np.arange(0, len(first), 2)[:, None] // 2 % divisors.size]
        steps_of = first[::2] - low + own * np.cumsum(chosen[::2], axis=1)
        within[::2] = low + steps_of % ((span + 1) // own * own)
    return within


def _picked(choices: list[int], other: Whole, source: Stream) -> Whole:
    """Return some of the numbers, drawn at random; ``other`` where there are none."""
    if not choices:
        return other
    places = source.words(other.size) % np.uint64(len(choices))
    picked: Whole = np.array(choices, np.int64)[places.astype(np.int64)].reshape(other.shape)
    return picked
