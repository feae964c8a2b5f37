"""How far two arrays are apart in units of the scale of one of them: one number, fast.

``compare`` finds that number too, with everything else that a report shows; here it is all that is
asked for, thousands of times while one divergence is looked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Elements taken at a time: some arrays of as many float64 fit the second-level cache.
_BLOCK = 1 << 15


def scale_error(actual: Array, expected: Array) -> float:
    """Return max |a - e| / (|e| + rms(e)) in float64 over two arrays.

    Infinite where shapes differ, or where NaN or infinities are not at the same places. Whatever
    the arrays' size, a few blocks of float64 are all the memory it takes.
    """
    if actual.shape != expected.shape:
        return float("inf")
    a, e = np.asarray(actual).reshape(-1), np.asarray(expected).reshape(-1)
    scale = rms(e)
    worst = 0.0
    with np.errstate(all="ignore"):
        for low in range(0, e.size, _BLOCK):
            wide = e[low : low + _BLOCK].astype(np.float64)
            apart = a[low : low + _BLOCK].astype(np.float64)
            share = _share(apart, wide, scale)
            if not share < np.inf:
                return float("inf")
            worst = max(worst, share)
    return worst


def _share(a: Array, e: Array, rms: float) -> float:
    """Return the largest share of a block, infinite where special values differ."""
    scale = np.abs(e)
    scale += rms
    difference = np.subtract(a, e)
    np.abs(difference, out=difference)
    difference /= scale
    top = float(difference.max())
    if np.isfinite(top):
        return top
    finite = np.isfinite(e)
    if not np.array_equal(a[~finite], e[~finite], equal_nan=True):
        return float("inf")
    a, e = a[finite], e[finite]
    if not np.isfinite(a).all():
        return float("inf")
    difference = np.abs(a - e)
    share = np.where(difference == 0, 0.0, difference / (np.abs(e) + rms))
    return float(share.max()) if share.size else 0.0


def rms(e: Array) -> float:
    """Return the root mean square of the finite elements, 0 where there are none."""
    e = np.asarray(e).reshape(-1)
    squares, count = 0.0, 0
    with np.errstate(all="ignore"):
        for low in range(0, e.size, _BLOCK):
            wide = e[low : low + _BLOCK].astype(np.float64)
            found = float(np.square(wide).sum())
            if not np.isfinite(found):
                wide = wide[np.isfinite(wide)]
                found = float(np.square(wide).sum())
            squares, count = squares + found, count + wide.size
    return float(np.sqrt(squares / count)) if count else 0.0
