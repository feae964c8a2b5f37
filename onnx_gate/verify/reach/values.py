"""Inputs made of the values at which modules decide: constants, whole numbers, halves, equals, scales.

Each row of an input is drawn in one of several ways, and the ways go round by rows: a large batch
holds them all, of a single row each case holds one.

For modules that ask for them there are NaN and infinity as well: missing values, and readings out of range.
A row that is still finite where its own elements are not is one that the module cares for. So half of the
rows have one such element, each another one, and the others have one in four.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import (
    FLOATS,
    Float64,
    Stream,
    draw,
    is_mask,
    numpy_dtype,
    to_dtype,
)
from onnx_gate.verify.inputs.masks import draw_input, masks_positions
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes, concrete
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.rules import Missing
from onnx_gate.verify.reach.whole import bits, integers

_ASKED: Mapping[Missing, float] = {"isnan": math.nan, "isinf": math.inf}
Key = tuple[object, ...]


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
    twins: dict[tuple[object, ...], str] = {}
    for name, spec in inputs.items():
        source, at = Stream(*key, name), at_sizes(spec, sizes)
        if name not in known or masks_positions(name, spec):
            arrays[name] = draw_input(name, at, sizes, source, "normal", way or 0)
            continue
        shape = concrete(spec, sizes)
        rows, axes = (shape[0], shape[1:]) if shape else (1, ())
        ways = np.arange(rows) % len(WAYS) if way is None else np.full(rows, way)
        # The same for inputs of one domain, so that one row is alike in all of them.
        shared = Stream(*key, "equal", known[name].low, known[name].high)
        if is_mask(spec):
            values: Array = bits(rows, axes, ways, source)
        else:
            domain = known[name]
            make, ends = (
                (_floats, (domain.low, domain.high)) if domain.is_float else (integers, domain.ends)
            )
            values = make(domain, rows, axes, ways, source, shared)
            twin = twins.setdefault((spec.dtype, spec.range, shape), name)
            if twin != name:
                values = np.clip(_nearly(values, arrays[twin].reshape(values.shape)), *ends)
        arrays[name] = _cast(values, at, shape)
    return arrays


def _nearly(own: Array, twin: Array) -> Array:
    """Return rows of which one turn in four is those of another input of one kind, and one is near them.

    A difference of the two is a small number there, made of large ones: nothing has moved, or little.
    """
    turn = (np.arange(len(own)) // len(WAYS) % len(_APART))[:, None]
    twin = twin.astype(own.dtype)
    near = ((own - twin) * np.array(_APART)[turn]).astype(own.dtype)
    nearly: Array = np.where(turn < 2, own, twin + near)
    return nearly


def _cast(values: Array, spec: InputSpec, shape: tuple[int, ...]) -> Array:
    if spec.dtype in FLOATS:
        return to_dtype(values, spec, shape)
    whole: Array = values.astype(numpy_dtype(spec.dtype)).reshape(shape)
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
        _in_turn(normal, low, high, source),
    )
    values = np.choose(ways[:, None], made) if width else normal
    clipped: Float64 = np.clip(values, low, high)
    return clipped


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
    "one after another",
)
# Of how far inputs of one kind are apart so much is left, turn by turn.
_APART = (1.0, 1.0, 0.0, 2.0**-10)
IN_ORDER = WAYS.index("one after another")
# So often a signal changes its sign there.
_TURNS = 15 / 16


def _scales(count: int, source: Stream) -> Float64:
    scales: Float64 = 10.0 ** (-6.0 + 6.5 * source.uniform(count))
    return scales


def _in_turn(drawn: Float64, low: float, high: float, source: Stream) -> Float64:
    """Return what was drawn, above and below the middle nearly always in turn, as the fastest signals are.

    Not always: what a sum adds up in lanes, each of one sign, is of another size than its parts.
    """
    middle = (low + high) / 2
    turns = source.uniform(drawn.size).reshape(drawn.shape) < _TURNS
    above = np.where(np.logical_xor.accumulate(turns, axis=1), 1.0, -1.0)
    turned: Float64 = middle + above * np.abs(drawn - middle)
    return turned


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


def missing(
    asked: Collection[Missing], known: Mapping[str, Domain]
) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield a name for what the module asks for, its value, and the inputs that may have it.

    All of those that nobody has declared a range for, and each alone.
    """
    free = [n for n, each in known.items() if each.is_float and each.drawn and not each.spec.range]
    for what in sorted(asked, key=str):
        value = _ASKED[what] if isinstance(what, str) else what
        label = what if isinstance(what, str) else f"equals/{what:g}"
        # What is in a domain is drawn there.
        names = tuple(n for n in free if not known[n].low <= value <= known[n].high)
        if names:
            yield label, value, names
        for name in names if len(names) > 1 else ():
            yield f"{label}/{name}", value, (name,)


def strewn(
    arrays: Mapping[str, Array], names: Collection[str], value: float, parts: str
) -> dict[str, Array]:
    """Return the arrays with ``value``, of either sign, at some elements of the named ones, row by row."""
    made = dict(arrays)
    for name in names:
        array = np.array(arrays[name])
        rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
        words = Stream("missing", parts, name).words(rows.size).reshape(rows.shape)
        chosen = words % np.uint64(4) == 0
        alone = np.arange(0, len(rows), 2)
        chosen[alone] = np.arange(rows.shape[1]) == (alone // 2 % max(rows.shape[1], 1))[:, None]
        rows[chosen] = np.where(words >> np.uint64(63), -value, value)[chosen]
        made[name] = rows.reshape(array.shape)
    return made
