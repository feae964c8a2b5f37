"""Elements that rounding decides: a floor, an index, a threshold, a branch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.scale import Mask, Stratum

# Errors of a smooth computation leave no gap of this many powers of two (32, as CHANNEL_GAP).
_FLIP_BITS = 5
# What is below the gap has to be a quarter of all, or it is not what the elements usually do.
_SMOOTH_SHARE = 0.25
# No error of float64 is more powers of two above the floor.
_MOST_BITS = 1100


def decided_by_rounding(
    expected: Array,
    answers: Sequence[Array],
    moving: int,
    strata: Sequence[Stratum],
    limit: float,
) -> Mask | None:
    """Return the elements that moved rounding changes by far more than it changes the others.

    The first ``moving`` of ``answers`` are the runs with moved rounding.

    A smooth computation moves by a continuum of amounts. A decision moves some elements by as
    much as its two sides are apart, which leaves a gap between those that moved so and those that
    did not.
    """
    opened = np.zeros(expected.shape, np.bool_)
    for stratum in strata:
        own = stratum.of(expected).astype(np.float64)
        counts = np.zeros(_MOST_BITS, np.int64)
        for run in answers[:moving]:
            steps = (
                np.minimum(_moved_bits(run, own, stratum, limit), _MOST_BITS - 1)
                .astype(np.int64)
                .reshape(-1)
            )
            counts += np.bincount(steps, minlength=_MOST_BITS)
        high = _first_beyond_the_gap(counts)
        if high is None:
            continue
        part = np.zeros(own.shape, np.bool_)
        for answer in answers:
            part |= _moved_bits(answer, own, stratum, limit) >= high
        if stratum.mask is None:
            opened |= part
        else:
            opened[stratum.mask] |= part
    return opened if opened.any() else None


def _moved_bits(answer: Array, own: Array, stratum: Stratum, limit: float) -> Array:
    """Return by how many powers of two each element has moved beyond ``limit``, at least 0."""
    finite = own[np.isfinite(own)]
    scale = stratum.scale(float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.abs(stratum.of(answer).astype(np.float64) - own) / (np.abs(own) + scale)
        share = np.nan_to_num(share, nan=0.0, posinf=np.finfo(np.float64).max)
        return np.asarray(np.log2(np.maximum(share / limit, 1.0)).clip(max=_MOST_BITS))


def _first_beyond_the_gap(counts: NDArray[np.int64]) -> int | None:
    """Return the first bin behind a gap that has most of the elements below it."""
    occupied = np.flatnonzero(counts)
    for low, high in itertools.pairwise(occupied):
        if high - low > _FLIP_BITS and counts[: low + 1].sum() >= _SMOOTH_SHARE * counts.sum():
            return int(high)
    return None
