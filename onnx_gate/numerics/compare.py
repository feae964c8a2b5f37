"""Comparing two arrays: every metric of a check in one pass at memory speed.

The arrays are read once, in blocks that stay in the cache, so the extra memory is constant. What
is rare is not computed for every element: a block without NaN or infinity shows it by its largest
difference, quotients are taken only of elements that can beat the largest one so far, and
elements are held against the limit only in blocks whose largest difference exceeds ``atol``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnx_gate.numerics.pairs import Pair, check_pair
from onnx_gate.numerics.stream import STRIP, Array, Best, Floats, blocks, stream
from onnx_gate.numerics.sums import (
    Sum,
    cosine,
    decibels,
    dot,
    inner,
    is_safe,
    squared_distance,
    total,
)
from onnx_gate.numerics.ulp import max_ulp

__all__ = ["Comparison", "ScaledError", "compare", "max_ulp", "scaled_error"]

_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_LARGEST = float(np.finfo(np.float64).max)

# Sums of squares within this factor are of comparable magnitude.
_COMPARABLE = 16.0


@dataclass(frozen=True)
class Comparison:
    """How two arrays of one shape differ; ``a`` is an element of actual, ``e`` of expected.

    Indices are flat, in C order, the first that attains the extreme, and -1 where there is none.
    *Finite pairs* are those where both elements are finite; where there is none, sums and maxima
    are 0.0.
    """

    elements: int
    """Number of pairs."""
    finite: int
    """Number of finite pairs."""
    max_abs: float
    """max |a - e| over finite pairs; inf where the difference overflows float64."""
    max_abs_index: int
    max_rel: float
    """max |a - e| / |e| over finite pairs with e != 0."""
    rms: float
    """sqrt(mean (a - e)²) over finite pairs."""
    expected_rms: float
    """sqrt(mean e²) over finite pairs."""
    cosine: float | None
    """a·e / (|a| |e|) over finite pairs, in [-1, 1]. 1.0 where both norms are zero, 0.0 where one
    is, None where no pair is finite."""
    snr_db: float | None
    """10 log10(sum e² / sum (a - e)²) over finite pairs: inf where nothing differs, -inf where
    something does and every e is 0, None where no pair is finite."""
    nonfinite: int
    """Number of pairs where NaN does not meet NaN or an infinity not the same infinity."""
    nonfinite_index: int
    exceeding: int
    """Number of finite pairs with |a - e| > atol + rtol |e|, and of the pairs in ``nonfinite``."""
    exceeding_index: int
    """Where |a - e| - (atol + rtol |e|) is largest; it is infinite for pairs in ``nonfinite``."""


@dataclass(frozen=True)
class ScaledError:
    """The error of an array against a reference, on the reference's own scale."""

    max: float
    """max |x - r| / (|r| + scale) over finite pairs; 0.0 where there is none."""
    index: int
    """The first flat C-order index that attains it; -1 where there is none."""


def compare(
    actual: Array, expected: Array, *, atol: float = 0.0, rtol: float = 0.0, threads: int = 1
) -> Comparison:
    """Return every metric of ``actual`` against ``expected``.

    An element exceeds where |a - e| > atol + rtol |e|, the convention of ``numpy.allclose`` and
    ``torch.testing.assert_close``: ``expected`` is the reference, and NaN equals NaN.

    The arrays have equal shapes (0-d and empty ones too), any strides, and each its own dtype:
    bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 or float64. All arithmetic is
    in float64; differences of 64-bit integers are exact before they are rounded to it (but for
    uint64 against a negative integer, within two roundings), and a 64-bit integer against a float
    is rounded first. Sums of squares do not overflow or underflow, whatever the magnitudes.

    ``threads`` never changes the result. Extra memory is a few MiB a thread, whatever the size.

    Raises ``ValueError`` for unequal shapes, negative, NaN or (``rtol``) infinite tolerances and
    ``threads`` below 1; ``TypeError`` for any other dtype.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    check_pair(actual, expected)
    if not atol >= 0.0 or not 0.0 <= rtol < math.inf:
        raise ValueError(f"tolerances must be non-negative numbers: atol={atol}, rtol={rtol}")
    atol, rtol = float(atol), float(rtol)
    workers = stream(
        actual.size, threads, lambda: _CompareWorker(actual, expected, atol=atol, rtol=rtol)
    )
    finite = sum(w.finite for w in workers)
    aa = total(part for w in workers for part in w.aa.tasks)
    ee = total(part for w in workers for part in w.ee.tasks)
    ae = total(part for w in workers for part in w.ae.tasks)
    dd = total(part for w in workers for part in w.dd.tasks)
    absolute = Best.of([w.absolute for w in workers])
    relative = max((w.relative for w in workers), default=0.0)
    return Comparison(
        elements=actual.size,
        finite=finite,
        max_abs=max(absolute.value, 0.0),
        max_abs_index=absolute.index,
        max_rel=max(relative, 0.0),
        rms=dd.sqrt(finite) if finite else 0.0,
        expected_rms=ee.sqrt(finite) if finite else 0.0,
        cosine=cosine(aa, ee, ae, dd) if finite else None,
        snr_db=decibels(ee, dd) if finite else None,
        nonfinite=sum(w.clashes for w in workers),
        nonfinite_index=min((w.first_clash for w in workers if w.clashes), default=-1),
        exceeding=sum(w.exceeding + w.clashes for w in workers),
        exceeding_index=_worst(workers),
    )


def _worst(workers: list[_CompareWorker]) -> int:
    excess = Best.of([w.excess for w in workers])
    for worker in workers:
        if worker.clashes:
            excess.offer(math.inf, worker.first_clash)
    return excess.index


def scaled_error(x: Array, reference: Array, scale: float, threads: int = 1) -> ScaledError:
    """Return the largest |x - r| / (|r| + scale), and where it is.

    ``scale`` is what counts as small for this reference, as its root mean square; it is finite
    and not negative. 0/0 counts as 0 and anything else over 0 as inf. Pairs with a NaN or an
    infinity are left out: ``compare`` counts them. Shapes, dtypes, threads, memory and errors as
    for ``compare``; ``ValueError`` for any other ``scale``.
    """
    x, reference = np.asarray(x), np.asarray(reference)
    check_pair(x, reference)
    if not 0.0 <= scale < math.inf:
        raise ValueError(f"scale must be finite and not negative, not {scale}")
    scale = float(scale)
    workers = stream(x.size, threads, lambda: _ScaledWorker(x, reference, scale))
    best = Best.of([w.quotient for w in workers])
    return ScaledError(max=max(best.value, 0.0), index=best.index)


class _Blockwise:
    """What both metrics share: reading blocks, setting special values apart, adding squares."""

    # Whether a², e², a e and (a - e)² are added up.
    norms: bool

    def __init__(self, actual: Array, expected: Array) -> None:
        self.pair = Pair(actual, expected)
        self.finite = 0
        self.clashes = 0
        self.first_clash = -1
        self.dd, self.aa, self.ee, self.ae = Sum(), Sum(), Sum(), Sum()
        # Only float64 reaches magnitudes whose squares overflow, or quotients that underflow.
        self.extreme = "float64" in (actual.dtype.name, expected.dtype.name)

    def task(self, low: int, high: int) -> None:
        for start, n in blocks(low, high):
            if not self._plain_block(start, n):
                self._special_block(start, n)
        for part in (self.dd, self.aa, self.ee, self.ae):
            part.close()

    def _plain_block(self, start: int, n: int) -> bool:
        """Take in a block of finite pairs of moderate magnitude, or return False."""
        pair = self.pair
        pair.load(start, n)
        aa = inner(pair.a, pair.a) if self.norms else 0.0
        d = pair.subtract(n)
        top = float(d.max())
        # The difference to NaN or an infinity is never finite, so one look at the largest tells.
        if not math.isfinite(top):
            return False
        dd = inner(pair.a, pair.a)
        ee = inner(pair.e, pair.e) if self.norms else 0.0
        if self.extreme and not (is_safe(dd) or dd == top == 0.0):
            return False
        if self.norms:
            if not (aa <= ee * _COMPARABLE and ee <= aa * _COMPARABLE):
                return False
            if self.extreme and not (is_safe(aa) and is_safe(ee)):
                return False
            self.dd.add(dd)
            self.aa.add(aa)
            self.ee.add(ee)
            # By the law of cosines; no term is much larger than |a| |e|, so nothing is lost.
            self.ae.add((aa + ee - dd) / 2.0)
        self.finite += n
        self.search(start, d, top)
        return True

    def _special_block(self, start: int, n: int) -> None:
        """Take in any block."""
        pair = self.pair
        pair.load(start, n)
        hidden, clash = pair.hide_nonfinite(n)
        if clash.size:
            if not self.clashes:
                self.first_clash = start + int(clash[0])
            self.clashes += clash.size
        if hidden.all():
            return
        self.finite += n - int(np.count_nonzero(hidden))
        if self.norms:
            self.dd.add_scaled(squared_distance(pair.a, pair.e))
            self.aa.add_scaled(dot(pair.a, pair.a))
            self.ee.add_scaled(dot(pair.e, pair.e))
            self.ae.add_scaled(dot(pair.a, pair.e))
        d = pair.subtract(n)
        # Below any difference, so that no search finds them.
        d[hidden] = -1.0
        self.search(start, d, float(d.max()))

    def search(self, start: int, d: Floats, top: float) -> None:
        """Look for extremes in the block loaded: differences ``d``, of which ``top`` is largest.

        Pairs that are not finite have difference -1.0 and an expected 0.0.
        """
        raise NotImplementedError

    def cannot_exceed(self, top: float, lowest: float, best: float) -> bool:
        """Whether no difference up to ``top`` over ``lowest`` or more can be above ``best``."""
        bound = lowest * _lowered(best)
        if self.extreme:
            bound = min(max(bound - _SMALLEST_NORMAL, 0.0), _LARGEST)
        return best >= 0.0 and (top <= 0.0 or top <= bound)

    def candidates_above(self, d: Floats, denominators: Floats, best: float) -> NDArray[np.intp]:
        """Return, increasing, the places where d / denominator can be above ``best``, and more.

        d / q > best implies d > best * q, and that product, taken with a slightly smaller best,
        is not rounded above the true one unless it underflows or overflows; for float64, which
        alone gets there, any d > 0 or an infinite d is then a contender.
        """
        bound, mask = self.pair.spare[: d.size], self.pair.mask[: d.size]
        np.multiply(denominators, _lowered(best), out=bound)
        if self.extreme:
            np.subtract(bound, _SMALLEST_NORMAL, out=bound)
            np.clip(bound, 0.0, _LARGEST, out=bound)
        np.greater(d, bound, out=mask)
        return np.flatnonzero(mask) if mask.any() else _NOWHERE


_NOWHERE: NDArray[np.intp] = np.zeros(0, np.intp)


def _lowered(best: float) -> float:
    return min(best * (1.0 - 2.0**-50), math.nextafter(best, 0.0))


class _CompareWorker(_Blockwise):
    norms = True

    def __init__(self, actual: Array, expected: Array, *, atol: float, rtol: float) -> None:
        super().__init__(actual, expected)
        self.absolute = Best()
        self.relative = -1.0  # before any
        self.excess = Best()
        self.exceeding = 0
        self._atol = atol
        self._rtol = rtol

    def search(self, start: int, d: Floats, top: float) -> None:
        if top > self.absolute.value:
            self.absolute.offer(top, start + int(d.argmax()))
        e = self.pair.e[: d.size]
        np.absolute(e, out=e)
        lowest = float(e.min())
        best = self.relative
        places = None
        if best < 0.0:
            self._offer_quotients(d, e, np.flatnonzero(e[:STRIP]))
            best = self.relative
        if best < 0.0:
            self._offer_quotients(d, e, np.flatnonzero(e))
        elif not self.cannot_exceed(top, lowest, best):
            places = self.candidates_above(d, e, best)
            self._offer_quotients(d, e, places)
        if top <= self._atol + self._rtol * lowest:
            return
        if places is not None and best <= self._rtol:
            # What is not above best * |e| is not above rtol * |e| either.
            self._offer_excess(start, d[places], e[places], places)
        else:
            self._offer_excess(start, d, e, None)

    def _offer_quotients(self, d: Floats, e: Floats, places: NDArray[np.intp]) -> None:
        places = places[e[places] > 0.0]
        if places.size:
            self.relative = max(self.relative, float((d[places] / e[places]).max()))

    def _offer_excess(
        self, start: int, d: Floats, e: Floats, places: NDArray[np.intp] | None
    ) -> None:
        """Count the differences above their limit and offer the worst; overwrites ``e``."""
        mask = self.pair.mask[: d.size]
        limit = np.multiply(e, self._rtol, out=e)
        np.add(limit, self._atol, out=limit)
        np.greater(d, limit, out=mask)
        count = int(np.count_nonzero(mask))
        if not count:
            return
        self.exceeding += count
        excess = np.subtract(d, limit, out=limit)
        largest = float(excess.max())
        if math.isnan(largest):
            # inf - inf, where the limit overflows too.
            excess[~mask] = -1.0
            largest = float(excess.max())
        if largest > self.excess.value:
            first = int(excess.argmax())
            self.excess.offer(largest, start + (first if places is None else int(places[first])))


class _ScaledWorker(_Blockwise):
    norms = False

    def __init__(self, x: Array, reference: Array, scale: float) -> None:
        super().__init__(x, reference)
        self.quotient = Best()
        self._scale = scale

    def search(self, start: int, d: Floats, top: float) -> None:
        best = self.quotient.value
        if self.cannot_exceed(top, self._scale, best):
            return
        e = self.pair.e[: d.size]
        np.absolute(e, out=e)
        np.add(e, self._scale, out=e)
        if best < 0.0:
            self._offer_quotients(start, d, e, np.flatnonzero(d[:STRIP] >= 0.0))
            best = self.quotient.value
        everything = best < 0.0
        places = np.flatnonzero(d >= 0.0) if everything else self.candidates_above(d, e, best)
        self._offer_quotients(start, d, e, places)

    def _offer_quotients(self, start: int, d: Floats, e: Floats, places: NDArray[np.intp]) -> None:
        if not places.size:
            return
        above, below = d[places], e[places]
        quotients = above / below
        quotients[above == 0.0] = 0.0
        # inf / inf, where the denominator overflows too.
        quotients[np.isinf(above)] = math.inf
        first = int(quotients.argmax())
        self.quotient.offer(float(quotients[first]), start + int(places[first]))
