"""Integers and booleans: equal, or an index that points at an equal value.

An index is judged by what it points at. ``argmax``, ``argmin``, ``max``, ``min`` and a stable sort
promise the first of equals, so where the equality is exact (it stays when rounding is moved) the
index has to be the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import Mask, Noise, Terms
from onnx_gate.verify.reference.answers import IndexSource, Searched


def point_at_equals(
    candidate: Array, expected: Array, searched: Searched, factor: float
) -> Mask | None:
    """Return where ``candidate``'s indices point at values that are PyTorch's but for rounding.

    The two values that were exchanged may each be off by the noise of their own. ``None`` where
    nothing can be told: the output is no index, or an index is out of range.
    """
    own = searched.own
    if candidate.dtype.kind not in "iu" or own.values.dtype.kind not in "iubfV":
        return None
    picked_c, picked_t = own.gather(candidate), own.gather(expected)
    if picked_c is None or picked_t is None:
        return None
    c, t = picked_c.astype(np.float64), picked_t.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        close = (c == t) | (np.isnan(c) & np.isnan(t))
        if own.values.dtype.kind not in "iub" and not close.all():
            terms = Terms.of(factor, own.values.dtype)
            noise = Noise(own.values, terms, searched).all()
            limits = noise.limits(slice(None)).reshape(own.values.shape)
            allowed = [own.gather(each, limits) for each in (candidate, expected)]
            close |= np.abs(c - t) <= sum(each for each in allowed if each is not None)
    if own.promises_first:
        close &= ~_exactly_equal(candidate, expected, [own, *searched.moved])
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
