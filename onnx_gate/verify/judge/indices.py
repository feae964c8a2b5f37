"""Integers and booleans: equal, or an index that points at an equal value.

An index is judged by what it points at, on the scale of the row that was searched. ``argmax``,
``argmin``, ``max`` and ``min`` promise the first of equals, so where the equality is exact (it
stays when rounding is moved) the index has to be the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_gate.numerics.compare import scaled_error
from onnx_gate.numerics.precision import eps_of
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import FLOOR, Terms
from onnx_gate.verify.judge.scale import Kinds, Mask
from onnx_gate.verify.reference.index_source import IndexSource, Searched


def point_at_equals(
    candidate: Array, expected: Array, searched: Searched, factor: float
) -> Mask | None:
    """Return where ``candidate``'s indices point at values that are PyTorch's but for rounding.

    ``None`` where nothing can be told: the output is no index, or an index is out of range.
    """
    own = searched.own
    if candidate.dtype.kind not in "iu" or own.values.dtype.kind not in "iubfV":
        return None
    exact = own.values.dtype.kind in "iub"
    reference = own.values if searched.float64 is None else searched.float64.values
    if reference.shape != own.values.shape:
        reference = own.values
    picked_c, picked_t = own.gather(candidate, reference), own.gather(expected, reference)
    if picked_c is None or picked_t is None:
        return None
    c, t = picked_c.astype(np.float64), picked_t.astype(np.float64)
    allowed, scale = np.zeros(t.shape), np.zeros(t.shape)
    if not exact:
        limits = [own.gather(expected, a) for a in _allowed(own, reference, factor)]
        allowed, scale = (np.zeros(t.shape) if a is None else a for a in limits)
    with np.errstate(invalid="ignore", over="ignore"):
        # Each of the two may be off by what is allowed.
        close = (np.abs(c - t) <= 2 * allowed * (np.abs(t) + scale)) | (c == t)
    close |= np.isnan(c) & np.isnan(t)
    if own.promises_first:
        close &= ~_exactly_equal(candidate, expected, [own, *searched.others()])
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


def _allowed(own: IndexSource, reference: Array, factor: float) -> tuple[Array, Array]:
    """Return the error that is allowed where each index points, and the scale it is taken on."""
    terms = Terms(factor, FLOOR[str(own.values.dtype)] * eps_of(own.values.dtype))
    allowed, scales = np.empty(reference.shape), np.empty(reference.shape)
    base = reference.astype(np.float64)
    for stratum in Kinds().strata(own.values):
        elements = stratum.of(base)
        finite = elements[np.isfinite(elements)]
        scale = stratum.scale(float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0)
        error = scaled_error(stratum.of(own.values), elements, scale)
        part = ... if stratum.mask is None else stratum.mask
        allowed[part], scales[part] = terms.allowed(error.max), scale
    # The scale is that of the row that was searched, where the row has one of its own.
    if own.axis is not None and base.ndim:
        finite = np.where(np.isfinite(base) & (np.abs(base) <= 1e3 * scales), base, 0.0)
        rows = np.sqrt(np.mean(np.square(finite), axis=own.axis, keepdims=True))
        scales = np.minimum(scales, np.maximum(np.broadcast_to(rows, base.shape), 1e-3 * scales))
    return allowed, scales
