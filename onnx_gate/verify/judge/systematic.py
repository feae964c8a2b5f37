"""Differences that are no rounding however small: of one sign, or proportional to the output.

With ``d = c - t`` and ``s_i`` the standard deviation of what rounding does to element i (eps of it,
and what moved rounding was seen to do), every element says ``u_i = d_i / s_i``. Rounding makes their
mean, and their regression on ``t_i / s_i``, as small as the number of elements is large. How small
is told by the moved runs themselves, whose errors are as correlated as rounding's are, and never
less than independent roundings allow. On top of it a fixed part: a kernel with a fused
multiply-add, or one multiplication by a rounded constant, shifts all elements alike.

The sums are added up over all cases of an output, so that outputs of one element are asked as well,
with the power that so few of them have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import Floats, Noise

# Standard deviations of rounding that a sum may be off by. Moved rounding is a model of rounding:
# what it is wrong by is granted as it is to elements, of which K is twice this.
DEVIATIONS = 5.0
# The share of the floor that all elements may be off by alike. docs/evidence.md has the largest that
# correct models were measured to have.
SHIFT = 0.2

Measure = Literal["constant factor", "one sign"]


@dataclass(frozen=True)
class Systematic:
    """What a difference has that rounding has not: ``value`` times the output, or of its noise."""

    measure: Measure
    value: float
    allowed: float

    @property
    def share(self) -> float:
        """The share of what is allowed that was used."""
        return abs(self.value) / self.allowed

    def sentence(self, against: str) -> str:
        """Return it in words."""
        if self.measure == "constant factor":
            return f"ONNX − {against} is {self.value:+.2g} times the output throughout"
        side = "above" if self.value > 0 else "below"
        return (
            f"ONNX is {side} {against} throughout, by {abs(self.value):.2g} times what rounding "
            "does to an element"
        )


@dataclass(frozen=True)
class _Sum:
    """A sum over elements, the weight it is divided by, and its variance under rounding."""

    value: float = 0.0
    weight: float = 0.0
    variance: float = 0.0

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(
            self.value + other.value, self.weight + other.weight, self.variance + other.variance
        )


@dataclass(frozen=True)
class Lean:
    """The sums of a difference, of one case or of several: regression, mean, and F eps."""

    factor: _Sum = _Sum()
    sign: _Sum = _Sum()
    floor: float = 0.0
    relative: float = 0.0

    def __add__(self, other: Lean) -> Lean:
        return Lean(
            self.factor + other.factor,
            self.sign + other.sign,
            max(self.floor, other.floor),
            max(self.relative, other.relative),
        )

    @property
    def systematic(self) -> Systematic | None:
        """What of the difference rounding does not explain, ``None`` where it explains all."""
        found = [s for s in self.measured() if s.share > 1]
        return max(found, key=lambda s: s.share, default=None)

    def measured(self) -> list[Systematic]:
        """Return both measures with what is allowed of them."""
        rows: tuple[tuple[Measure, _Sum, float], ...] = (
            ("constant factor", self.factor, SHIFT * self.relative),
            ("one sign", self.sign, SHIFT * self.floor),
        )
        return [
            Systematic(
                name, s.value / s.weight, DEVIATIONS * math.sqrt(s.variance) / s.weight + fixed
            )
            for name, s, fixed in rows
            if s.weight > 0
        ]


def lean_of(candidate: Array, noise: Noise, base: Array | None = None) -> Lean:
    """Return the sums of one case; ``base`` is what is subtracted in the place of ``expected``."""
    terms = noise.terms

    def look(array: Array) -> Floats:
        return array.reshape(-1)[noise.sample].astype(np.float64)

    with np.errstate(all="ignore"):
        t = look(noise.expected)
        moves = [look(run) - t for run in noise.runs]
        squares = np.square(terms.eps * t) + terms.step**2
        if moves:
            squares += np.mean([np.nan_to_num(m, nan=0.0) ** 2 for m in moves], axis=0)
        s = np.sqrt(squares)
        u, v = (look(candidate) - (t if base is None else look(base))) / s, t / s
        good = np.isfinite(u) & np.isfinite(v) & (t != 0)
        for move in moves:
            good &= np.isfinite(move)
    u, v, s = u[good], v[good], s[good]
    runs = [m[good] / s for m in moves]
    alike, energy = _repeated(t[good]), float(v @ v)
    return Lean(
        _Sum(float(u @ v), energy, _variance(alike * energy, [float(r @ v) for r in runs])),
        _Sum(float(u.sum()), u.size, _variance(alike * u.size, [float(r.sum()) for r in runs])),
        terms.floor,
        terms.relative,
    )


def _repeated(t: Floats) -> float:
    """Return how often a value comes on average: rows that are all alike are one row.

    Two that share ten bits are taken for the same, as rounding is the same for both.
    """
    mantissa, exponent = np.frexp(t)
    distinct = np.unique(np.rint(mantissa * 1024) + 4096.0 * exponent).size
    return t.size / max(distinct, 1)


def _variance(independent: float, runs: list[float]) -> float:
    return max(independent, float(np.mean(np.square(runs))) if runs else 0.0)


def most(lean: Lean) -> float:
    """Return the largest share of what is allowed."""
    return max((s.share for s in lean.measured()), default=0.0)
