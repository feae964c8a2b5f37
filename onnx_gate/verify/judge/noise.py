"""What rounding can do to each element of one of PyTorch's answers.

An element is judged by its own noise: ``m_i``, the largest move of element i over runs in which
every operator's rounding was moved, on the same inputs (Monte Carlo arithmetic, Parker 1997), and

    |c_i - t_i| <= K m_i + F eps |t_i| + the least normal number

No other element lends it a scale or a noise. Where everything is within the floor (``m_i`` = 0),
no run is made. First the last operators alone are moved, some times (``tape``); then come whole runs, in
groups. They end as soon as every element is well within its limit: ``m_i`` only grows with them, so an
early end forgives nothing, and what refuses an output has seen all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_gate.numerics.compare import scaled_error
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.stream import BLOCK
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reference.answers import OutputAnswers

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
# Some of the flat elements of an array.
Part = slice | NDArray[np.int64] | Mask

# F. Measured for float32; two results of 16 bits that are both rounded well are at most two units
# apart. docs/evidence.md has the tables and the command that makes them.
FLOOR = {"float64": 10.0, "float32": 10.0, "float16": 2.0, "bfloat16": 2.0}
# How many runs there are after each group of them. Of outputs of some ten numbers one is mostly
# enough, of a thousand two or three; with 4 of them 117 of 130 correct architectures were within their
# limits, with 16 all but those whose operators cannot be watched.
GROUPS = (1, 2, 3, 4, 5, 6, 8, 16)
# How many times the last operators alone are moved after each group of these, before there is a whole run:
# to move them costs an eighth of one.
AGAIN = (2, 4, 6, 8)
# No more runs are made where no element uses more of its limit: what is near it is told by all runs.
# Of 34 cases of an encoder beyond the floor 30 end so after one run, and 31 would at the limit itself.
SURE = 0.75
# An element that rounding alone moves by this share of it was not compared but left open.
VISIBLE = 0.01
# Elements that sums over an output are taken from.
_LOOKED_AT = 1 << 18


@dataclass(frozen=True)
class Terms:
    """What is granted: ``factor`` is K, ``floor`` is F, ``least`` the least normal number.

    ``step`` is F times the distance of the numbers below it, of which eps says nothing.
    """

    factor: float
    floor: float
    eps: float
    least: float
    step: float
    threads: int = 1

    @classmethod
    def of(cls, factor: float, dtype: np.dtype[np.generic], threads: int = 1) -> Terms:
        """Return the terms for outputs of a floating-point ``dtype``.

        An engine may flush what it computes in float32, also where the output is of float64.
        """
        floor, known = FLOOR[str(dtype)], ml_dtypes.finfo(dtype)
        flushed = float(np.finfo(np.float32).smallest_normal)
        least = max(float(known.smallest_normal), flushed)
        step = max(floor * float(known.smallest_subnormal), flushed)
        return cls(factor, floor, eps_of(dtype), least, step, threads)

    @property
    def relative(self) -> float:
        """The relative error that is granted without a run."""
        return self.floor * self.eps


@dataclass(frozen=True)
class Used:
    """The largest share of its limit that an element has used, and the flat index of that one."""

    share: float
    index: int


class Noise:
    """The noise of each element of ``expected``, and more of it as more runs are made."""

    def __init__(self, expected: Array, terms: Terms, answers: OutputAnswers) -> None:
        self.expected, self.terms, self._answers = expected, terms, answers
        self.runs: list[Array] = []
        self.ends: list[Array] = []
        self._groups, self._again = list(GROUPS), list(AGAIN)
        self._moves: Array | None = None
        step = expected.size // _LOOKED_AT + 1
        while math.gcd(step, expected.size) > 1 and step > 1:  # of all rows and channels alike
            step += 1
        self.sample = slice(None, None, step)

    def more(self) -> bool:
        """Make the next group of runs; return whether there was one."""
        if not self._groups:
            return False
        runs = list(self._answers.rounding(self._groups.pop(0)))
        for run in runs[len(self.runs) :]:
            self._take(run)
        self.runs = runs
        return True

    def again(self) -> bool:
        """Move the last operators alone some times more; return whether there was such a run."""
        if self.runs or not self._again:
            return False
        made = self._answers.replayed(self._again.pop(0))[len(self.ends) :]
        for run in made:
            self._take(run)
        self.ends += made
        return bool(made)

    @property
    def samples(self) -> Sequence[Array]:
        """What shows how elements move together: whole runs, and where none was made those of the end."""
        return self.runs or self.ends

    def of(self, other: Array, runs: Sequence[Array]) -> Noise:
        """Return the noise of another answer, of which these are the runs."""
        noise = self.at(other, None)
        for run in runs:
            noise._take(run)
        return noise

    def at(self, expected: Array, moves: Array | None) -> Noise:
        """Return the noise of another answer, of which each element moves by ``moves``."""
        noise = Noise(expected, self.terms, self._answers)
        noise._groups, noise._again, noise._moves = [], [], moves
        return noise

    def all(self) -> Noise:
        """Make all runs."""
        while self.more():
            pass
        return self

    def moves(self, part: Part) -> Floats:
        """Return ``m_i`` of a part of the flat elements."""
        if self._moves is None:
            return np.zeros(self.expected.reshape(-1)[part].shape)
        return self._moves[part].astype(np.float64)

    def deviations(self) -> Floats:
        """Return the standard deviation of what rounding does to each flat element, a unit at least."""
        t = self.expected.reshape(-1).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            squares = np.square(self.terms.eps * t)
            for run in self.samples:
                squares += np.nan_to_num(run.reshape(-1) - t) ** 2 / len(self.samples)
        return np.sqrt(squares)

    def limits(self, part: Part, base: Array | None = None) -> Floats:
        """Return by how much a part of the flat elements may be off; ``base`` is another answer."""
        size = np.abs(
            (self.expected if base is None else base).reshape(-1)[part].astype(np.float64)
        )
        size[~np.isfinite(size)] = 0.0
        terms = self.terms
        return np.asarray(
            terms.factor * self.moves(part)
            + terms.relative * size
            + np.where(size <= terms.least, terms.least, terms.step),
            np.float64,
        )

    def used(self, candidate: Array, base: Array | None = None) -> Used:
        """Return the largest share of its limit that an element of ``candidate`` is off by.

        ``base`` is what it is held against, in the place of ``expected``. Pairs of which one is
        not finite are left out.
        """
        against = self.expected if base is None else base
        terms = self.terms
        if self._moves is None:
            error = scaled_error(candidate, against, terms.step / terms.relative, terms.threads)
            return Used(error.max / terms.relative, error.index)
        best = Used(0.0, -1)
        c, t = candidate.reshape(-1), against.reshape(-1)
        for low in range(0, t.size, BLOCK):
            part = slice(low, low + BLOCK)
            with np.errstate(invalid="ignore", over="ignore"):
                shares = distance(c[part], t[part]) / self.limits(part, against)
            shares[~np.isfinite(shares)] = 0.0
            place = int(np.argmax(shares))
            if shares[place] > best.share or best.index < 0:
                best = Used(float(shares[place]), low + place)
        return best

    def beyond(self, candidate: Array, base: Array | None = None) -> NDArray[np.int64]:
        """Return the flat indices of the elements that are beyond their limits."""
        against = self.expected if base is None else base
        c, t = candidate.reshape(-1), against.reshape(-1)
        found = [np.zeros(0, np.int64)]
        for low in range(0, t.size, BLOCK):
            part = slice(low, low + BLOCK)
            off = distance(c[part], t[part])
            found.append(np.flatnonzero(off > self.limits(part, against)) + low)
        return np.concatenate(found)

    @cached_property
    def usual(self) -> float:
        """What is usual in the output: the median of the magnitudes of what is not zero."""
        t = np.abs(self.expected.reshape(-1)[self.sample].astype(np.float64))
        t = t[np.isfinite(t) & (t > 0)]
        return float(np.median(t)) if t.size else 0.0

    def decided(self, part: Part) -> Mask:
        """Return which of a part of the flat elements rounding moves by a visible part.

        By a visible part of the element and of what is usual in the output: an element that is
        next to nothing is no decision.
        """
        size = np.abs(self.expected.reshape(-1)[part].astype(np.float64))
        return self.moves(part) > VISIBLE * np.maximum(size, self.usual)

    def opened(self, candidate: Array) -> Mask | None:
        """Return where rounding may have decided, beyond the floor; ``None`` where it has nowhere."""
        if self._moves is None or not self.expected.size:
            return None
        opened = np.zeros(self.expected.size, np.bool_)
        c, flat = candidate.reshape(-1), self.expected.reshape(-1)
        for low in range(0, flat.size, BLOCK):
            part = slice(low, low + BLOCK)
            size = np.abs(flat[part].astype(np.float64))
            off = distance(c[part], flat[part]) > self.terms.relative * size + self.terms.step
            opened[part] = self.decided(part) & off
        return opened.reshape(self.expected.shape) if opened.any() else None

    def _take(self, run: Array) -> None:
        size, wide = self.expected.size, self.expected.dtype == np.float64
        moves = self._moves
        if moves is None:
            moves = self._moves = np.zeros(size, np.float64 if wide else np.float32)
        r, t = run.reshape(-1), self.expected.reshape(-1)
        for low in range(0, size, BLOCK):
            part = slice(low, low + BLOCK)
            with np.errstate(invalid="ignore", over="ignore"):
                moved = np.abs(r[part].astype(np.float64) - t[part].astype(np.float64))
                moved[np.isnan(moved)] = 0.0
                np.maximum(moves[part], moved, out=moves[part], casting="same_kind")


def distance(a: Array, b: Array) -> Floats:
    """Return |a - b|, 0 where both are NaN or the same infinity, infinite where one is."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.asarray(np.abs(a - b))
    d[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return np.asarray(np.nan_to_num(d, nan=np.inf, posinf=np.inf), np.float64)
