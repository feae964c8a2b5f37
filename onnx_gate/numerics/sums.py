"""Sums of squares and products that neither overflow nor lose what is near zero.

The idea
    An array is read once, in blocks, by several threads, and the sum must not depend on how many:
    a report that changes its last digit from run to run cannot be compared with its baseline. The
    inner product of one block is BLAS's, in float64, always over the same elements; what blocks and
    tasks amount to is added by ``math.fsum``, which is exact and rounds once (Shewchuk, "Adaptive
    Precision Floating-Point Arithmetic", 1997), so that the order of the tasks cannot matter.

    Squares leave the range of float64 long before their roots do: 1e200 squared is infinite and
    1e-200 squared is 0. A sum is therefore carried as a mantissa and an exponent of its own
    (``Scaled``), and vectors beyond a magnitude are scaled by a power of two first, which loses
    nothing (the scaling of LAPACK's nrm2, decided once a block instead of once an element).

The invariant
    A ``Sum`` is the exactly rounded sum of its tasks' results, and a task's result depends on
    nothing but its elements.

What it costs
    One BLAS call for each strip of a block. The search for the largest magnitude (``_exponent``)
    is one more pass over a block, and is made only where float64 is read and a plain sum is not safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnx_gate.numerics.stream import STRIP, Floats

# Sums of squares between these bounds lost nothing that matters to overflow or underflow: what
# underflows is below 1e-307, a part in 1e57 of the lower one, and a hundred million blocks at the
# upper one still add up to a number.
_SAFE_LOW, _SAFE_HIGH = 1e-250, 1e300

# Products of vectors whose largest magnitudes are within 2**±400 are safe too: a block of squares is
# below 2**818 of 2**1024, and what underflows beside 2**-800 is 2**-222 of it.
_MODERATE = 400


@dataclass(frozen=True)
class Scaled:
    """The number ``mantissa * 2**exponent``; the mantissa is 0.0 or in [0.5, 1) in magnitude."""

    mantissa: float
    exponent: int

    def sqrt(self, divisor: int = 1) -> float:
        """Return the root of this number over ``divisor`` as a float64; inf where too large."""
        mantissa, exponent = self.mantissa / divisor, self.exponent
        if exponent % 2:
            mantissa, exponent = mantissa * 2.0, exponent - 1
        return _ldexp(math.sqrt(mantissa), exponent // 2)


ZERO = Scaled(0.0, 0)


def scaled(value: float, exponent: int = 0) -> Scaled:
    """Return ``value * 2**exponent``, which may lie outside the range of a float64."""
    mantissa, shift = math.frexp(value)
    return Scaled(mantissa, exponent + shift) if mantissa else ZERO


def total(parts: Iterable[Scaled]) -> Scaled:
    """Return the sum of ``parts``, rounded once, so that their order does not matter."""
    terms = [part for part in parts if part.mantissa]
    if not terms:
        return ZERO
    top = max(part.exponent for part in terms)
    return scaled(math.fsum(_ldexp(p.mantissa, p.exponent - top) for p in terms), top)


class Sum:
    """A sum that depends neither on the order of its tasks nor on who took them.

    Terms are added to the task at hand, in order; ``close`` ends a task.
    """

    __slots__ = ("_plain", "_scaled", "tasks")

    def __init__(self) -> None:
        self.tasks: list[Scaled] = []
        self._plain: list[float] = []
        self._scaled: list[Scaled] = []

    def add(self, value: float) -> None:
        """Add a finite number."""
        self._plain.append(value)

    def add_scaled(self, value: Scaled) -> None:
        """Add a number that float64 may not hold."""
        self._scaled.append(value)

    def close(self) -> None:
        """End a task."""
        self.tasks.append(total([scaled(math.fsum(self._plain)), *self._scaled]))
        self._plain.clear()
        self._scaled.clear()


def inner(x: Floats, y: Floats) -> float:
    """Return the inner product of two contiguous vectors of one strip or whole strips."""
    rows = max(1, x.size // STRIP)
    return float(sum(np.matmul(x.reshape(rows, 1, -1), y.reshape(rows, -1, 1)).ravel().tolist()))


def dot(x: Floats, y: Floats) -> Scaled:
    """Return ``inner`` of two finite vectors of any magnitude; nothing overflows or vanishes."""
    kx, ky = _exponent(x), _exponent(y)
    if max(abs(kx), abs(ky)) <= _MODERATE:
        return scaled(inner(x, y))
    return scaled(inner(np.ldexp(x, -kx), np.ldexp(y, -ky)), kx + ky)


def squared_distance(x: Floats, y: Floats) -> Scaled:
    """Return the sum of (x - y)² of two finite vectors, whose differences may exceed float64."""
    apart = x - y
    if np.isfinite(apart).all():
        return dot(apart, apart)
    shift = max(_exponent(x), _exponent(y)) + 1
    apart = np.ldexp(x, -shift) - np.ldexp(y, -shift)
    return scaled(inner(apart, apart), 2 * shift)


def is_safe(square_sum: float) -> bool:
    """Whether a sum of squares is trustworthy as float64 computed it (0.0 is not)."""
    return _SAFE_LOW < square_sum < _SAFE_HIGH


def cosine(aa: Scaled, ee: Scaled, ae: Scaled, dd: Scaled) -> float:
    """Return the cosine of the angle between vectors a and e from their inner products.

    ``dd`` is the square of |a - e|. By the law of cosines |a - e|² = (|a| - |e|)² +
    2 |a| |e| (1 - cos), so for vectors close to each other 1 - cos follows from small numbers
    alone and loses no digits; elsewhere cos = a·e / (|a| |e|). Two zero vectors have cosine 1.0,
    one zero vector 0.0. The result is in [-1, 1].
    """
    if not aa.mantissa or not ee.mantissa:
        return float(aa.mantissa == ee.mantissa)
    unit = max(aa.exponent, ee.exponent)
    a2, e2, d2 = (_ldexp(s.mantissa, s.exponent - unit) for s in (aa, ee, dd))
    na, ne = math.sqrt(a2), math.sqrt(e2)
    if d2 < na * ne:
        gap = (a2 - e2) / (na + ne)
        value = 1.0 - max(0.0, d2 - gap * gap) / (2.0 * na * ne)
    else:
        norms = scaled(aa.mantissa * ee.mantissa, aa.exponent + ee.exponent)
        odd = norms.exponent % 2
        root = math.sqrt(math.ldexp(norms.mantissa, odd))
        value = _ldexp(ae.mantissa / root, ae.exponent - (norms.exponent - odd) // 2)
    return min(1.0, max(-1.0, value))


def decibels(signal: Scaled, noise: Scaled) -> float:
    """Return 10 log10(signal / noise) for sums of squares; inf without noise, -inf without signal.

    Without either it is inf: nothing differs.
    """
    if not noise.mantissa:
        return math.inf
    if not signal.mantissa:
        return -math.inf
    octaves = signal.exponent - noise.exponent
    return 10.0 * (math.log10(signal.mantissa / noise.mantissa) + octaves * math.log10(2.0))


def _exponent(x: Floats) -> int:
    return math.frexp(float(np.abs(x).max(initial=0.0)))[1]


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
