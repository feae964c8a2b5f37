"""Differences that are no rounding however small: of one sign, or proportional to the output.

With ``d = c - t`` and ``s_i`` the standard deviation of what rounding does to element i (eps of it,
and what moved rounding was seen to do), every element says ``u_i = d_i / s_i``. Rounding makes their
mean, and their regression on ``t_i / s_i``, as small as the number of elements is large. How small
is told by the moved runs themselves, whose errors are as correlated as rounding's are, and never
less than independent roundings allow. On top of it a fixed part: a kernel with a fused
multiply-add, or one multiplication by a rounded constant, shifts all elements alike.

What rounding decides is left out: it goes one way or the other in all elements that hang on it, and is
not compared. The sums are added up over all cases of an output, so that outputs of one element are asked
as well, with the power that so few of them have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import Floats, Noise

# Standard deviations of rounding that a sum may be off by. Moved rounding is a model of rounding:
# what it is wrong by is granted as it is to elements, of which K is twice this.
DEVIATIONS = 5.0
# The share of the floor that all elements may be off by alike. docs/evidence.md has the largest that
# correct models were measured to have.
SHIFT = 0.2
# So many values of an output are known from case to case: those of the most elements.
_VALUES = 1024

Measure = Literal["constant factor", "one sign"]


@dataclass(frozen=True)
class Systematic:
    """What a difference has that rounding has not: ``value`` times the output, or of its noise.

    It is one of what is ``chosen`` where the output says which.
    """

    measure: Measure
    value: float
    allowed: float
    chosen: bool = False

    @property
    def share(self) -> float:
        """The share of what is allowed that was used."""
        return abs(self.value) / self.allowed

    def sentence(self, against: str) -> str:
        """Return it in words."""
        if self.measure == "constant factor":
            return f"ONNX − {against} is {self.value:+.2g} times the output throughout"
        side = "above" if self.value > 0 else "below"
        who = ("what ONNX chooses", f"what {against} does") if self.chosen else ("ONNX", against)
        return (
            f"{who[0]} is {side} {who[1]} throughout, by {abs(self.value):.2g} times what rounding "
            "does to an element"
        )


@dataclass(frozen=True)
class _Sum:
    """A sum over elements, the weight it is divided by, and its variance under rounding.

    ``moved`` is the variance of the moved runs. ``alike`` has what elements of one value can be off
    by together: an approximation (a ``tanh`` that has saturated) is off by the same wherever it is
    given the same, in whatever case. ``other`` is the variance of those that are left.
    """

    value: float = 0.0
    weight: float = 0.0
    moved: float = 0.0
    other: float = 0.0
    alike: Mapping[int, float] = field(default_factory=dict)

    def __add__(self, other: _Sum) -> _Sum:
        alike = dict(self.alike)
        for key, size in other.alike.items():
            alike[key] = alike.get(key, 0.0) + size
        return _Sum(
            self.value + other.value,
            self.weight + other.weight,
            self.moved + other.moved,
            self.other + other.other,
            alike,
        )

    @property
    def variance(self) -> float:
        """What is larger: what the runs show, and what elements that are not alike lose."""
        return max(self.moved, self.other + sum(size**2 for size in self.alike.values()))


@dataclass(frozen=True)
class Lean:
    """The sums of a difference, of one case or of several: regression, mean, and F eps."""

    factor: _Sum = _Sum()
    sign: _Sum = _Sum()
    floor: float = 0.0
    relative: float = 0.0
    chosen: bool = False

    def __add__(self, other: Lean) -> Lean:
        return Lean(
            self.factor + other.factor,
            self.sign + other.sign,
            max(self.floor, other.floor),
            max(self.relative, other.relative),
            self.chosen or other.chosen,
        )

    @property
    def systematic(self) -> Systematic | None:
        """What of the difference rounding does not explain, ``None`` where it explains all."""
        found = [s for s in self.measured() if s.share > 1]
        return max(found, key=lambda s: s.share, default=None)

    @property
    def is_slight(self) -> bool:
        """Whether it is within what is allowed whatever rounding does to all elements together.

        Sums over cases of which each is so are so.
        """
        return all(abs(s.value) <= fixed * s.weight for _, s, fixed in self._rows())

    def measured(self) -> list[Systematic]:
        """Return both measures with what is allowed of them."""
        return [
            Systematic(
                name,
                s.value / s.weight,
                DEVIATIONS * math.sqrt(s.variance) / s.weight + fixed,
                self.chosen,
            )
            for name, s, fixed in self._rows()
            if s.weight > 0
        ]

    def _rows(self) -> tuple[tuple[Measure, _Sum, float], ...]:
        return (
            ("constant factor", self.factor, SHIFT * self.relative),
            ("one sign", self.sign, SHIFT * self.floor),
        )


def lean_of(candidate: Array, noise: Noise, base: Array | None = None) -> Lean:
    """Return the sums of one case; ``base`` is what is subtracted in the place of ``expected``."""
    terms = noise.terms

    def look(array: Array) -> Floats:
        return array.reshape(-1)[noise.sample].astype(np.float64)

    with np.errstate(all="ignore"):
        t = look(noise.expected)
        moves = [look(run) - t for run in noise.samples]
        squares = np.square(terms.eps * t) + terms.step**2
        if moves:
            squares += np.mean([np.nan_to_num(m, nan=0.0) ** 2 for m in moves], axis=0)
        s = np.sqrt(squares)
        u, v = (look(candidate) - (t if base is None else look(base))) / s, t / s
        good = np.isfinite(u) & np.isfinite(v) & (t != 0) & ~noise.decided(noise.sample)
        for move in moves:
            good &= np.isfinite(move)
    u, v, s = u[good], v[good], s[good]
    runs = [m[good] / s for m in moves]
    keys, places = _values(t[good])

    def summed(weights: Floats) -> _Sum:
        sizes = np.bincount(places, np.abs(weights), keys.size)
        most = np.argsort(sizes)[::-1]
        return _Sum(
            _product(u, weights),
            _product(weights, weights),
            float(np.mean([_product(r, weights) ** 2 for r in runs])) if runs else 0.0,
            float(np.square(sizes[most[_VALUES:]]).sum()),
            dict(zip(keys[most[:_VALUES]].tolist(), sizes[most].tolist(), strict=False)),
        )

    return Lean(summed(v), summed(np.ones_like(u)), terms.floor, terms.relative)


def lean_of_choices(apart: Floats, runs: Sequence[Floats], noise: Floats) -> Lean:
    """Return the sums of how far ``apart`` are what is chosen and what was to be, in a case.

    ``runs`` are the same of what moved rounding chooses, ``noise`` is what it does to both. A largest
    value is above all others, so that what rounding chooses in its place is always below: by as much
    in all as the runs show, whatever one element may be off by.
    """
    asked = (noise > 0) & np.isfinite(apart)
    if not runs or not asked.any():
        return Lean()
    found = [float(np.nansum(each[asked] / noise[asked])) for each in (apart, *runs)]
    count = float(np.count_nonzero(asked))
    moved = float(np.mean(np.square(found[1:])))
    return Lean(sign=_Sum(found[0], count, moved, count), chosen=True)


def _product(a: Floats, b: Floats) -> float:
    """Return the inner product, on one thread: BLAS wakes more of them for less than they take."""
    return float(np.einsum("i,i", a, b))


def _values(t: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values that elements have, and which of them each has.

    Two that share ten bits are taken for the same, as rounding is the same for both; and of either
    sign.
    """
    mantissa, exponent = np.frexp(np.abs(t))
    keys = np.rint(mantissa * 1024).astype(np.int64) + 4096 * exponent.astype(np.int64)
    return np.unique(keys, return_inverse=True)


def most(lean: Lean) -> float:
    """Return the largest share of what is allowed."""
    return max((s.share for s in lean.measured()), default=0.0)
