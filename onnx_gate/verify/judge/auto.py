"""``auto``: the candidate may be K times as far from float64 as PyTorch itself is.

With ``r`` the model in float64, ``s`` the scale of a stratum (``scale``) and
``E(x) = max |x - r| / (|r| + s)``, the elements of a stratum pass where
``E(c) <= max(K * N, F * eps)``, and the same for the root mean square. ``N`` is PyTorch's own
error: ``E(t)``, and where that does not settle it, the largest of it and of ``E`` of a few runs
of PyTorch whose operators' results were moved by what rounding can do (Monte Carlo arithmetic,
Parker 1997): one run of one program is a small sample.

What a multiple of PyTorch's error may excuse is bounded by what correct implementations were
measured to need:

- up to ``SURE`` times PyTorch's error nothing more is asked, where that error is small;
- beyond that the difference has to look like rounding. One that is a constant, or a constant
  times the output, throughout is none, unless moved rounding does the same;
- K falls as PyTorch's error grows: ten times 1e-6 is rounding, ten times 0.02 is another number.

Where moved rounding changes elements by far more than all others (a floor, an index, a branch
that rounding decides), these are set apart: they say nothing about the error of the others, and
the candidate has to be within the tolerance of *one* of PyTorch's answers there.

Float64 is no reference where the module refuses it or computes another function in it (as
``torch.finfo(x.dtype).eps`` does: PyTorch is then further from it than moved rounding explains).
Then ``t`` stands for ``r``, on the same scale, and moved rounding alone for ``N``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from onnx_gate.numerics.compare import scaled_error
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import (
    MOVED_SHARE,
    STEADY,
    SURE,
    Noise,
    Terms,
    Yard,
    floor_yard,
    measure,
    rms_of,
)
from onnx_gate.verify.judge.scale import Stratum

# A part of this share of the energy of a difference is what the difference is made of.
MAIN_SHARE = 0.5
# A mean over fewer elements than this is chance.
FEW = 32


class Answers(Protocol):
    """What PyTorch says of one output beyond its answer, computed when first asked for."""

    def float64(self) -> Array | None:
        """Return the output in float64; ``None`` where the model cannot run in it."""
        ...

    def rounding(self, more: bool = False) -> Sequence[Array]:
        """Return the output of runs whose operators' rounding was moved; ``more`` makes more."""
        ...


@dataclass(frozen=True)
class Systematic:
    """What a difference is made of where it is no rounding: ``value`` times the output, or the scale.

    ``allowed`` is the largest that moved rounding explains, in the same unit.
    """

    measure: Literal["constant factor", "constant shift"]
    value: float
    allowed: float

    def sentence(self, against: str) -> str:
        """Return it in words."""
        of = "times the output" if self.measure == "constant factor" else "of the output's scale"
        return f"ONNX − {against} is {self.value:+.2g} {of} throughout, which rounding is not"


@dataclass(frozen=True)
class AutoResult:
    """``error`` and ``torch_error`` are E of the candidate and of PyTorch in the worst stratum.

    ``mean`` and ``allowed_mean`` are the root mean square error and its limit, on the same scale.

    ``budget`` is the share of the allowed error that was used, ``allowed`` the limit on E.
    ``systematic`` is what the difference is made of where it is no rounding. ``uncapped``: the
    difference is within K times PyTorch's own error, and only too large all the same.
    """

    budget: float
    allowed: float
    basis: str
    index: int
    error: float
    torch_error: float | None = None
    systematic: Systematic | None = None
    uncapped: bool = False
    mean: float = 0.0
    allowed_mean: float = math.inf
    yard: Yard | None = field(default=None, repr=False)

    @property
    def holds(self) -> bool:
        """Return whether the error is allowed."""
        return self.budget <= 1.0

    @property
    def by_mean(self) -> bool:
        """Return whether the mean error alone has used most of its limit."""
        within = self.error <= self.allowed
        return within and self.mean * self.allowed > self.error * self.allowed_mean


def auto(
    candidate: Array,
    expected: Array,
    strata: Sequence[Stratum],
    terms: Terms,
    answers: Answers,
) -> AutoResult:
    """Judge one floating-point output against PyTorch's answer ``expected``, of the same shape.

    ``answers`` has no float64 for a model that computes in it: nothing wider is known.
    """
    near = against(candidate, floor_yard(expected, strata, terms), terms.threads)
    if near.holds:
        return near
    reference = answers.float64()
    if reference is not None:
        yard = measure(expected, reference, (), strata, terms)
        result = against(candidate, yard, terms.threads)
        # Moved rounding grants more, and does so in vain, unless float64 may be no reference.
        if result.holds and all(
            n.own <= 4 * terms.limit or (n.own <= STEADY and _within(candidate, yard, n))
            for n in yard.noise
        ):
            return result
    result = _with_rounding(candidate, expected, reference, answers.rounding(), strata, terms)
    if not result.holds and result.yard is not None and result.yard.open is not None:
        # What rounding decides has many answers, and a few runs show a few of them.
        more = answers.rounding(more=True)
        result = _with_rounding(candidate, expected, reference, more, strata, terms)
    return result


def against(
    candidate: Array, yard: Yard, threads: int = 1, base: Array | None = None
) -> AutoResult:
    """Hold ``candidate`` against ``yard``; ``base`` is another answer to hold it against.

    Another answer may be larger, and is then judged on its own scale.
    """
    base, other = (yard.base, False) if base is None else (base, True)
    results: list[AutoResult] = []
    for noise in yard.noise:
        chosen, reference = noise.stratum.of(candidate), noise.stratum.of(base)
        if other:
            noise = replace(noise, scale=max(noise.scale, rms_of(reference, threads)))
        error = scaled_error(chosen, reference, noise.scale, threads)
        mean = error.rms / noise.scale
        budget = error.max / noise.allowed
        if not budget > 1:
            budget = max(budget, mean / noise.allowed_rms)
        systematic = None
        asked = noise.own > STEADY or error.max > SURE * noise.torch
        if yard.basis != "floor" and budget <= 1 and asked:
            systematic = _systematic(chosen, reference, noise)
        uncapped = error.max <= noise.uncapped
        results.append(
            AutoResult(
                abs(systematic.value) / systematic.allowed if systematic else budget,
                noise.allowed,
                yard.basis,
                noise.stratum.index(error.index),
                error.max,
                noise.own if yard.basis != "floor" else None,
                systematic,
                uncapped and systematic is None,
                mean,
                noise.allowed_rms,
                yard,
            )
        )
    if yard.open is not None:
        results.append(_nearest(candidate, yard))
    if not results:
        return AutoResult(0.0, 0.0, yard.basis, -1, 0.0, yard=yard)
    return max(results, key=lambda r: r.budget)


def _with_rounding(
    candidate: Array,
    expected: Array,
    reference: Array | None,
    samples: Sequence[Array],
    strata: Sequence[Stratum],
    terms: Terms,
) -> AutoResult:
    samples = [s for s in samples if s.shape == expected.shape]
    alone = measure(expected, None, samples, strata, terms)
    if reference is not None:
        yard = measure(expected, reference, samples, strata, terms)
        result = against(candidate, yard, terms.threads)
        # Whoever is within the floor of float64 is right, whatever PyTorch says.
        if (
            not samples
            or result.error <= terms.limit
            or not _another_function(expected, reference, alone)
        ):
            return result
    return against(candidate, alone, terms.threads)


def _another_function(expected: Array, reference: Array, alone: Yard) -> bool:
    """Return whether float64 is further from PyTorch than its rounding explains, in general.

    In general: in most elements of a stratum. In a few of them rounding may have decided.
    """
    for noise in alone.noise:
        t = noise.stratum.of(expected).astype(np.float64)
        r = noise.stratum.of(reference).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            share = np.abs(r - t) / (np.abs(t) + noise.scale)
        apart = share > max(noise.uncapped, 10 * noise.terms.limit)
        if np.count_nonzero(apart) > apart.size / 2:
            return True
    return False


def _within(candidate: Array, yard: Yard, noise: Noise) -> bool:
    """Return whether a stratum's error is one that correct implementations were seen to have."""
    error = scaled_error(
        noise.stratum.of(candidate), noise.stratum.of(yard.base), noise.scale, noise.terms.threads
    )
    return bool(
        error.max <= max(SURE * noise.own, noise.terms.limit)
        and error.rms / noise.scale <= max(SURE * noise.own_rms, noise.terms.limit)
    )


def _systematic(candidate: Array, base: Array, noise: Noise) -> Systematic | None:
    """Return the constant part of a difference that rounding has not, where it is the main one.

    The difference is projected on the output and on a constant. One of them is its main part
    where it has more than half of its energy; by chance it has 1/n.
    """
    finite = np.isfinite(candidate.astype(np.float64)) & np.isfinite(base.astype(np.float64))
    c, b = candidate[finite].astype(np.float64), base[finite].astype(np.float64)
    if c.size < FEW:
        return None
    d = c - b
    energy = float(d @ d)
    if energy == 0.0:
        return None
    squares, mean = float(b @ b), float(d.mean())
    slope = float(d @ b) / (squares or 1.0)
    shift = mean / noise.scale
    factor_allowed, shift_allowed = (SURE * own for own in noise.slopes)
    if slope**2 * squares > MAIN_SHARE * energy and abs(slope) > factor_allowed:
        return Systematic("constant factor", slope, factor_allowed)
    if mean**2 * d.size > MAIN_SHARE * energy and abs(shift) > shift_allowed:
        return Systematic("constant shift", shift, shift_allowed)
    return None


def _nearest(candidate: Array, yard: Yard) -> AutoResult:
    """Hold the open elements against the nearest of PyTorch's answers.

    A decision has two sides. An element of which PyTorch has more answers than that is not
    decided but noisy, by as much as they are apart, and is granted a multiple of it as elsewhere.
    """
    assert yard.open is not None
    opened = yard.open
    c = candidate[opened].astype(np.float64)
    answers = np.stack([answer[opened].astype(np.float64) for answer in yard.answers])
    own, scale = np.zeros(candidate.shape), np.ones(candidate.shape)
    for noise in yard.noise:
        part = ... if noise.whole.mask is None else noise.whole.mask
        own[part], scale[part] = noise.own, noise.scale
    terms = yard.noise[0].terms
    size = np.abs(answers) + scale[opened]
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.abs(c - answers) / size
        shares[(np.isnan(c) & np.isnan(answers)) | (c == answers)] = 0.0
        steps = np.diff(np.sort(answers[: yard.runs], axis=0), axis=0)
        apart = np.abs(answers[: yard.runs] - answers[0]).max(axis=0) / size[0]
    noisy = np.count_nonzero(steps > terms.limit * scale[opened], axis=0) > 1
    granted = np.maximum(own[opened], np.where(noisy & np.isfinite(apart), MOVED_SHARE * apart, 0))
    allowed = np.array([terms.allowed(float(each)) for each in granted])
    best = np.nan_to_num(
        np.nanmin(np.where(np.isnan(shares), np.inf, shares), axis=0), posinf=np.inf
    )
    budgets = best / allowed
    position = int(np.argmax(budgets))
    return AutoResult(
        float(budgets[position]),
        float(allowed[position]),
        yard.basis,
        int(np.flatnonzero(opened.reshape(-1))[position]),
        float(best[position]),
        yard.torch_error,
        yard=yard,
    )
