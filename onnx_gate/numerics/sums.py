"""Sums of squares and products that neither overflow nor lose what is near zero."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnx_gate.numerics.stream import STRIP, Floats

# Sums of squares between these bounds lost nothing that matters to overflow or underflow.
_SAFE_LOW, _SAFE_HIGH = 1e-250, 1e300

# Products of vectors whose largest magnitudes are within 2**±400 are safe too.
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
