"""Integers and booleans: equal, or an index that points at an equal value.

An index is judged by what it points at. ``argmax``, ``argmin``, ``max``, ``min`` and a stable sort
promise the first of equals, so where the equality is exact (it stays when rounding is moved) the
index has to be the same one. What is computed of an index, as the rows and columns of peaks are, is
judged by the places that it may come from: one of them has to hold an equal value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import Floats, Mask, Noise, Terms
from onnx_gate.verify.judge.systematic import Lean, lean_of_choices
from onnx_gate.verify.reference.answers import Derived, IndexSource, Searched

# Places that are looked at in a search for those that a number may come from.
_MOST = 1 << 26


def point_at_equals(
    candidate: Array, expected: Array, searched: Searched, factor: float
) -> tuple[Mask, Lean] | None:
    """Return where ``candidate``'s indices point at values that are PyTorch's but for rounding.

    The two values that were exchanged may each be off by the noise of their own; and what all of them
    lean to. ``None`` where nothing can be told: the output is no index, or an index is out of range.
    """
    own = searched.own
    if candidate.dtype.kind not in "iu" or own.values.dtype.kind not in "iubfV":
        return None
    if own.derived is not None:
        come = _come_of_equals(candidate, expected, searched, own.derived, factor)
        return None if come is None else (come, Lean())
    picked_c, picked_t = own.gather(candidate), own.gather(expected)
    if picked_c is None or picked_t is None:
        return None
    c, t = picked_c.astype(np.float64), picked_t.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # Whole numbers as they are: as floats those next to each other may be equal.
        close = (picked_c == picked_t) | (np.isnan(c) & np.isnan(t))
        lean = Lean()
        if own.values.dtype.kind not in "iub" and not close.all():
            noise = _noise(searched, factor)
            shape, whole = own.values.shape, slice(None)
            limits, usual = noise.limits(whole).reshape(shape), noise.deviations().reshape(shape)
            close |= np.abs(c - t) <= _of_both(own, candidate, expected, limits)
            squares = _of_both(own, candidate, expected, np.square(usual))
            found = (own.gather(each.chosen) for each in searched.moved if each.chosen is not None)
            runs = [each.astype(np.float64) - t for each in found if each is not None]
            lean = lean_of_choices(c - t, runs, np.sqrt(squares))
    if own.promises_first:
        close &= ~_exactly_equal(candidate, expected, [own, *searched.moved])
    return np.asarray(close.reshape(expected.shape), np.bool_), lean


def _of_both(own: IndexSource, candidate: Array, expected: Array, each: Floats) -> Floats:
    """Return the sums of what the two entries have that were exchanged."""
    both = [own.gather(candidate, each), own.gather(expected, each)]
    return np.asarray(sum(found for found in both if found is not None), np.float64)


def _noise(searched: Searched, factor: float) -> Noise:
    """Return the noise of each of the values that were searched."""
    values = searched.own.values
    return Noise(values, Terms.of(factor, values.dtype), searched).all()


def _limits(searched: Searched, factor: float) -> Floats:
    """Return by how much each of the values that were searched may be off."""
    values = searched.own.values
    if values.dtype.kind in "iub":
        return np.zeros(values.shape)
    return _noise(searched, factor).limits(slice(None)).reshape(values.shape)


def _come_of_equals(
    candidate: Array, expected: Array, searched: Searched, derived: Derived, factor: float
) -> Mask | None:
    """Return where a number is that of a place whose value is the chosen one's but for rounding."""
    own = searched.own
    close = (candidate == expected).reshape(-1)
    left = np.flatnonzero(~close)
    exact, limits = own.lanes(own.values), own.lanes(_limits(searched, factor))
    values = exact.astype(np.float64)
    whole = own.values.dtype.kind in "iub"
    if left.size * values.shape[1] > _MOST:
        return None
    lanes = own.lane_of()[left]
    places, numbers = derived.places.reshape(-1)[left], candidate.reshape(-1)[left]
    for at, lane, place, number in zip(left, lanes, places, numbers, strict=True):
        with np.errstate(invalid="ignore"):
            apart = np.abs(values[lane] - values[lane, place])
        equal = apart <= limits[lane] + limits[lane, place]
        equal &= (exact[lane] == exact[lane, place]) | (not whole)
        close[at] = bool((equal & (derived.of == number)).any())
    return np.asarray(close.reshape(expected.shape), np.bool_)


def _exactly_equal(candidate: Array, expected: Array, sources: Sequence[IndexSource]) -> Mask:
    """Return where both indices point at the same value in every one of PyTorch's runs."""
    equal = np.ones(expected.shape, np.bool_)
    for source in sources:
        c, t = source.gather(candidate), source.gather(expected)
        if c is None or t is None:
            return np.zeros(expected.shape, np.bool_)
        equal &= (c == t).reshape(expected.shape)
    return equal
