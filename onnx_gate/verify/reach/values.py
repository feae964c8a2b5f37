"""Inputs made of the values at which modules decide: constants, whole numbers, halves, equals, scales.

Each row of an input is drawn in one of several ways, and the ways go round by rows: a large batch
holds them all, of a single row each case holds one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import Float64, Stream, draw, is_mask, numpy_dtype, to_dtype
from onnx_gate.verify.inputs.masks import draw_input, masks_positions
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes, concrete
from onnx_gate.verify.reach.domain import Domain

Key = tuple[object, ...]

# Of so many combinations of codes each is tried; so are the rows of a table of that length.
MOST_COMBINATIONS = 4096


def draw_values(
    inputs: Mapping[str, InputSpec],
    known: Mapping[str, Domain],
    sizes: Sizes,
    key: Key,
    way: int | None = None,
) -> dict[str, Array]:
    """Return an array for each input; ``way`` is that of every row, ``None`` for all in turn.

    What has no domain is drawn as it is elsewhere.
    """
    arrays: dict[str, Array] = {}
    for name, spec in inputs.items():
        source, at = Stream(*key, name), at_sizes(spec, sizes)
        if name not in known or masks_positions(name, spec) or is_mask(spec):
            arrays[name] = draw_input(name, at, sizes, source, "normal", way or 0)
            continue
        shape = concrete(spec, sizes)
        rows, axes = (shape[0], shape[1:]) if shape else (1, ())
        ways = np.arange(rows) if way is None else np.full(rows, way)
        # The same for inputs of one domain, so that one row is alike in all of them.
        shared = Stream(*key, "equal", known[name].low, known[name].high)
        make = _floats if known[name].is_float else _integers
        values = make(known[name], rows, axes, ways % len(WAYS), source, shared)
        arrays[name] = _cast(values, at, shape)
    return arrays


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
) -> tuple[dict[str, Array], Enumeration]:
    """Return integer inputs in which values follow each other from ``first`` on, round and round.

    Rows of a few columns count as the digits of a number do, so that all combinations come; where
    these are too many, each input goes through its own values element by element.
    """
    widths = {name: int(np.prod(shape[1:], dtype=np.int64)) for name, shape in shapes.items()}
    rows = {shape[0] if shape else 1 for shape in shapes.values()}
    total = math.prod(spans[name] ** min(width, 16) for name, width in widths.items())
    arrays: dict[str, Array] = {}
    if len(rows) == 1 and max(widths.values()) <= 16 and total <= MOST_COMBINATIONS:
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
    shifted: Array = (values + int(domain.low)).astype(numpy_dtype(domain.spec.dtype))
    return shifted


def _cast(values: Float64, spec: InputSpec, shape: tuple[int, ...]) -> Array:
    if spec.dtype.startswith(("float", "bfloat")):
        return to_dtype(values, spec, shape)
    whole: Array = values.astype(np.int64).astype(numpy_dtype(spec.dtype)).reshape(shape)
    return whole


def _floats(
    domain: Domain,
    rows: int,
    axes: tuple[int, ...],
    ways: np.ndarray[tuple[int], np.dtype[np.int64]],
    source: Stream,
    shared: Stream,
) -> Float64:
    width = math.prod(axes)
    count = rows * width
    low, high = domain.low, domain.high
    normal = draw(domain.spec, (rows, width), source).astype(np.float64)
    uniform = source.uniform(count).reshape(rows, width)
    wide = low + (high - low) * uniform
    even = (source.words(count) & np.uint64(1)).astype(bool).reshape(rows, width)
    # Whole numbers around the middle of what is drawn: codes and counts are small.
    reach = min(high - low, 16.0)
    middle = min(max(0.0, low + reach / 2), high - reach / 2)
    whole = np.rint(middle + reach * (uniform - 0.5))
    picked = _picked(domain, rows, width, source, normal)
    alike = np.repeat(
        draw(domain.spec, (rows, 1), shared).astype(np.float64), max(width, 1), axis=1
    )[:, :width]
    if high - low >= 1:
        # Few significant bits, so that sums of equal numbers are exact, as in the edges' ties.
        alike = np.rint(8 * alike) / 8
    by_row = _scales(rows, shared)[:, None]
    by_element = _scales(count, source).reshape(rows, width)
    made = (
        np.where(even, picked, normal),
        wide,
        whole,
        np.where(even, whole + 0.5, whole),
        np.where(even, alike, normal),
        alike,
        normal * by_row,
        normal * by_element,
        normal * _by_stretch(rows, axes, source),
        np.where(even, low, high),
        picked,
        np.repeat(
            low + (high - low) * shared.uniform(rows).reshape(rows, 1), max(width, 1), axis=1
        )[:, :width]
        + normal / 16,
    )
    values = np.choose(ways[:, None], made) if width else normal
    clipped: Float64 = np.clip(values, low, high)
    return clipped


def _integers(
    domain: Domain,
    rows: int,
    axes: tuple[int, ...],
    ways: np.ndarray[tuple[int], np.dtype[np.int64]],
    source: Stream,
    shared: Stream,
) -> Float64:
    width = math.prod(axes)
    count = rows * width
    drawn = draw(domain.spec, (rows, width), source).astype(np.float64)
    even = (source.words(count) & np.uint64(1)).astype(bool).reshape(rows, width)
    picked = _picked(domain, rows, width, source, drawn)
    alike = np.repeat(
        draw(domain.spec, (rows, 1), shared).astype(np.float64), max(width, 1), axis=1
    )[:, :width]
    low = np.clip(domain.low + np.rint(8 * source.uniform(count)), domain.low, domain.high)
    made = (
        np.where(even, picked, drawn),
        drawn,
        low.reshape(rows, width),
        np.where(even, low.reshape(rows, width), drawn),
        np.where(even, alike, drawn),
        alike,
        np.sort(drawn, axis=1),
        _apart(domain, alike, even, source),
        drawn,
        np.where(even, domain.low, domain.high),
        picked,
        # Neighbours, which floats of as many digits do not tell apart.
        np.clip(alike + even, domain.low, domain.high),
    )
    chosen: Float64 = np.choose(ways[:, None], made) if width else drawn
    return chosen


def _apart(
    domain: Domain, first: Float64, chosen: np.ndarray[Any, np.dtype[np.bool_]], source: Stream
) -> Float64:
    """Return integers that follow each other at distances which are constants of the module, or are equal.

    ``first``, ``[rows, width]``, is where each row begins: one of another input with the same domain, too.
    """
    span = domain.high - domain.low
    steps = [each for each in domain.constants if 0 < abs(each) <= span / 2]
    if not steps:
        return first
    rows, width = first.shape
    near = _picked(replace(domain, constants=tuple(steps)), rows, width, source, first)
    apart = first + np.cumsum(np.where(chosen, near, 0.0), axis=1)
    # Beyond its end a domain begins anew.
    within: Float64 = domain.low + np.mod(apart - domain.low, span + 1)
    return within


WAYS = (
    "constants among others",
    "all of the domain",
    "whole numbers",
    "halves",
    "some alike",
    "all alike",
    "scales by row",
    "scales by element",
    "scales by stretch",
    "both ends",
    "constants",
    "nearly alike",
)


def _scales(count: int, source: Stream) -> Float64:
    scales: Float64 = 10.0 ** (-6.0 + 6.5 * source.uniform(count))
    return scales


def _by_stretch(rows: int, axes: tuple[int, ...], source: Stream) -> Float64:
    """Return factors, ``[rows, prod(axes)]``, under which signals pause: silence, padding, a border.

    Each axis is cut at random into four stretches, of which one is zero, one scaled and two are as
    they were. What lies in several takes the least factor.
    """
    factors = np.ones((rows, *axes))
    for axis, length in enumerate(axes, 1):
        if length < 2:
            continue
        cuts = length * source.uniform(3 * rows).reshape(rows, 3, 1)
        first = (source.words(rows) % np.uint64(4)).astype(np.int64)[:, None]
        stretch = first + (cuts <= np.arange(length)).sum(axis=1)
        scaled = _scales(rows, source)
        one = np.ones(rows)
        each = np.stack((one, np.zeros(rows), one, scaled), axis=1)
        along = np.take_along_axis(each, stretch % 4, axis=1)
        place = [rows if at == 0 else length if at == axis else 1 for at in range(factors.ndim)]
        factors = np.minimum(factors, along.reshape(place))
    return factors.reshape(rows, -1)


def _picked(domain: Domain, rows: int, width: int, source: Stream, other: Float64) -> Float64:
    """Return constants of the module drawn at random, ``other`` where it has none."""
    if not domain.constants:
        return other
    choices = np.asarray(domain.constants, dtype=np.float64)
    indices = (source.words(rows * width) % np.uint64(len(choices))).astype(np.int64)
    picked: Float64 = choices[indices].reshape(rows, width)
    return picked
