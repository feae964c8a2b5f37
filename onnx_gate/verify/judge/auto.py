"""``auto``: the candidate may be K times as far from float64 as PyTorch itself is.

With ``r`` the model in float64, ``s`` the scale of a stratum (``scale``) and
``E(x) = max |x - r| / (|r| + s)``, the elements of a stratum pass where
``E(c) <= max(K * N, F * eps)``, and the same for the root mean square. ``N`` is PyTorch's own
error: ``E(t)``, and where that does not settle it, the largest of it and of ``E`` of a few runs
of PyTorch whose operators' results were moved by what rounding can do (Monte Carlo arithmetic,
Parker 1997): one run of one program is a small sample.

What a multiple of PyTorch's error may excuse is bounded by what correct implementations were
measured to need:

- up to ``SURE`` times PyTorch's error nothing more is asked;
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

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import ml_dtypes
import numpy as np

from onnx_gate.numerics.compare import ScaledError, scaled_error
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.scale import Mask, Stratum

# F. Measured for float32; two results of 16 bits that are both rounded well are at most two units
# apart. docs/tolerances.md has the tables and the command that makes them.
FLOOR = {"float64": 10.0, "float32": 10.0, "float16": 2.0, "bfloat16": 2.0}
# The largest E(c) / E(t) of 123 correct architectures was 2.9.
SURE = 3.0
# K holds up to the first error of PyTorch's own, and has fallen to SURE at the second.
STEADY, SHAKY = 1e-4, 1e-2
# Runs with moved rounding move every result by up to one unit, twice what rounding does.
MOVED_SHARE = 0.5
# Whatever PyTorch's own error, a quarter of an output's scale is another output.
CEILING = 0.25
# A stratum that PyTorch itself has to no digit is the noise of the next larger one.
NOISE = 0.1
# A part of this share of the energy of a difference is what the difference is made of.
MAIN_SHARE = 0.5
# A mean over fewer elements than this is chance.
FEW = 32
# Errors of a smooth computation leave no gap of this many powers of two (32, as CHANNEL_GAP).
_FLIP_BITS = 5
_SMOOTH_SHARE = 0.25


class Answers(Protocol):
    """What PyTorch says of one output beyond its answer, computed when first asked for."""

    def float64(self) -> Array | None:
        """Return the output in float64; ``None`` where the model cannot run in it."""
        ...

    def rounding(self, more: bool = False) -> Sequence[Array]:
        """Return the output of runs whose operators' rounding was moved; ``more`` makes more."""
        ...


@dataclass(frozen=True)
class Noise:
    """What one stratum may be wrong by.

    ``stratum`` is the elements that are judged so, ``whole`` them and those that rounding
    decides. ``scale`` is s, ``own`` is N, ``own_rms`` the same of the root mean square (relative
    to ``scale``), ``allowed`` and ``allowed_rms`` the limits. ``uncapped`` is what K alone would
    allow. ``torch`` is E(t), N where there is no float64. ``slopes`` are the shares of a constant
    factor and of a constant shift in PyTorch's own errors.
    """

    stratum: Stratum
    whole: Stratum
    scale: float
    own: float
    own_rms: float
    allowed: float
    allowed_rms: float
    uncapped: float
    torch: float = 0.0
    slopes: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Yard:
    """How an output is measured: ``base`` is r (or t where there is none), by stratum.

    ``basis`` says what the verdict rests on: ``floor``, ``float64``, or ``rounding`` (moved
    rounding was needed). ``answers`` are PyTorch's at the elements that rounding decides, which
    are ``open``.
    """

    base: Array
    basis: str
    noise: tuple[Noise, ...]
    torch_error: float | None = None
    open: Mask | None = None
    answers: tuple[Array, ...] = ()


@dataclass(frozen=True)
class AutoResult:
    """``error`` and ``torch_error`` are E of the candidate and of PyTorch in the worst stratum.

    ``budget`` is the share of the allowed error that was used, ``allowed`` the limit on E.
    ``systematic`` says what the difference is made of where it is no rounding. ``uncapped``: the
    difference is within K times PyTorch's own error, and only too large all the same.
    """

    budget: float
    allowed: float
    basis: str
    index: int
    error: float
    torch_error: float | None = None
    systematic: str = ""
    uncapped: bool = False
    yard: Yard | None = field(default=None, repr=False)

    @property
    def holds(self) -> bool:
        """Return whether the error is allowed."""
        return self.budget <= 1.0


def auto(
    candidate: Array,
    expected: Array,
    strata: Sequence[Stratum],
    factor: float,
    eps: float,
    floor: float,
    answers: Answers,
    threads: int = 1,
) -> AutoResult:
    """Judge one floating-point output against PyTorch's answer ``expected``, of the same shape.

    ``factor`` is K, ``floor`` is F, ``eps`` the unit of the precision that the model computes in.
    """
    limit = floor * eps
    near = against(candidate, _floor_yard(expected, strata, limit, threads), threads)
    if near.holds:
        return near
    wide = expected.dtype == np.float64 and eps == np.finfo(np.float64).eps
    reference = None if wide else answers.float64()
    if reference is not None:
        yard = measure(expected, reference, (), strata, factor, limit, threads)
        result = against(candidate, yard, threads)
        sure = all(
            n.own <= max(STEADY, 4 * limit) and _within(candidate, yard, n, limit, threads)
            for n in yard.noise
        )
        if result.holds and sure:
            return result
    result = _with_rounding(
        candidate, expected, reference, answers.rounding(), strata, factor, limit, threads
    )
    if not result.holds and result.yard is not None and result.yard.open is not None:
        # What rounding decides has many answers, and a few runs show a few of them.
        more = answers.rounding(more=True)
        result = _with_rounding(
            candidate, expected, reference, more, strata, factor, limit, threads
        )
    return result


def allowed_error(own: float, limit: float, factor: float) -> float:
    """Return the error that is allowed where PyTorch's own is ``own`` and ``limit`` is F eps."""
    if own > STEADY and factor > SURE:
        fall = min(np.log(own / STEADY) / np.log(SHAKY / STEADY), 1.0)
        factor = float(factor * (SURE / factor) ** fall)
    return max(min(factor * own, CEILING), limit)


def measure(
    expected: Array,
    reference: Array | None,
    samples: Sequence[Array],
    strata: Sequence[Stratum],
    factor: float,
    limit: float,
    threads: int,
) -> Yard:
    """Return what each stratum may be wrong by, from PyTorch's own errors."""
    base = expected if reference is None else reference
    basis = "rounding" if samples or reference is None else "float64"
    answers = [expected, *samples, *([reference] if reference is not None else [])]
    opened = None
    if samples:
        opened = _decided_by_rounding(expected, answers[1:], len(samples), strata, limit)
    rows: list[Noise] = []
    for stratum in strata:
        kept = stratum if opened is None else _without(stratum, opened, expected.shape)
        elements = kept.of(base)
        scale = stratum.scale(_rms(elements, threads))
        own = ScaledError(0.0, -1, 0.0)
        if reference is not None:
            own = scaled_error(kept.of(expected), elements, scale, threads)
        worst, mean = own.max, own.rms / scale
        slopes = _slopes(kept.of(expected), elements, scale)
        slopes = max(slopes[0], limit / 10), max(slopes[1], limit / 10)
        for sample in samples:
            error = scaled_error(kept.of(sample), elements, scale, threads)
            worst = max(worst, MOVED_SHARE * error.max)
            mean = max(mean, MOVED_SHARE * error.rms / scale)
            factor_share, shift_share = _slopes(kept.of(sample), elements, scale)
            slopes = max(slopes[0], factor_share), max(slopes[1], shift_share)
        rows.append(
            Noise(
                kept,
                stratum,
                scale,
                worst,
                mean,
                allowed_error(worst, limit, factor),
                allowed_error(mean, limit, factor),
                max(factor * worst, limit),
                own.max if reference is not None else worst,
                slopes,
            )
        )
    torch_error = max(n.own for n in rows) if reference is not None or samples else None
    decided = tuple(answers) if opened is not None else ()
    return Yard(base, basis, _merged(rows, factor, limit), torch_error, opened, decided)


def against(
    candidate: Array, yard: Yard, threads: int = 1, base: Array | None = None
) -> AutoResult:
    """Hold ``candidate`` against ``yard``; ``base`` is another answer to hold it against."""
    base = yard.base if base is None else base
    results: list[AutoResult] = []
    for noise in yard.noise:
        chosen, reference = noise.stratum.of(candidate), noise.stratum.of(base)
        error = scaled_error(chosen, reference, noise.scale, threads)
        mean = error.rms / noise.scale
        budget = max(error.max / noise.allowed, mean / noise.allowed_rms)
        systematic = ""
        if yard.basis == "rounding" and budget <= 1 and error.max > SURE * noise.torch:
            systematic = _systematic(chosen, reference, noise)
        uncapped = error.max <= noise.uncapped
        results.append(
            AutoResult(
                max(budget, np.nextafter(1.0, 2.0)) if systematic else budget,
                noise.allowed,
                yard.basis,
                noise.stratum.index(error.index),
                error.max,
                noise.own if yard.basis != "floor" else None,
                systematic,
                uncapped and not systematic,
                yard,
            )
        )
    if yard.open is not None:
        results.append(_nearest(candidate, yard))
    if not results:
        return AutoResult(0.0, 0.0, yard.basis, -1, 0.0, yard=yard)
    return max(results, key=lambda r: r.budget)


def eps_of(dtype: np.dtype[np.generic]) -> float:
    """Return the distance from 1 to the next number of a floating-point dtype."""
    return float(ml_dtypes.finfo(dtype).eps)


def _floor_yard(expected: Array, strata: Sequence[Stratum], limit: float, threads: int) -> Yard:
    rows = []
    for stratum in strata:
        scale = stratum.scale(_rms(stratum.of(expected), threads))
        rows.append(Noise(stratum, stratum, scale, 0.0, 0.0, limit, limit, limit))
    return Yard(expected, "floor", tuple(rows))


def _with_rounding(
    candidate: Array,
    expected: Array,
    reference: Array | None,
    samples: Sequence[Array],
    strata: Sequence[Stratum],
    factor: float,
    limit: float,
    threads: int,
) -> AutoResult:
    samples = [s for s in samples if s.shape == expected.shape]
    alone = measure(expected, None, samples, strata, factor, limit, threads)
    if reference is not None:
        yard = measure(expected, reference, samples, strata, factor, limit, threads)
        result = against(candidate, yard, threads)
        # Whoever is within the floor of float64 is right, whatever PyTorch says.
        if (
            not samples
            or result.error <= limit
            or not _another_function(expected, reference, alone, limit)
        ):
            return result
    return against(candidate, alone, threads)


def _another_function(expected: Array, reference: Array, alone: Yard, limit: float) -> bool:
    """Return whether float64 is further from PyTorch than its rounding explains, in general.

    In general: in most elements of a stratum. In a few of them rounding may have decided.
    """
    for noise in alone.noise:
        t = noise.stratum.of(expected).astype(np.float64)
        r = noise.stratum.of(reference).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            share = np.abs(r - t) / (np.abs(t) + noise.scale)
        if np.mean(share > max(noise.uncapped, 10 * limit)) > 0.5:
            return True
    return False


def _within(candidate: Array, yard: Yard, noise: Noise, limit: float, threads: int) -> bool:
    """Return whether a stratum's error is one that correct implementations were seen to have."""
    error = scaled_error(
        noise.stratum.of(candidate), noise.stratum.of(yard.base), noise.scale, threads
    )
    return bool(
        error.max <= max(SURE * noise.own, limit)
        and error.rms / noise.scale <= max(SURE * noise.own_rms, limit)
    )


def _merged(rows: Sequence[Noise], factor: float, limit: float) -> tuple[Noise, ...]:
    """Judge a stratum of which PyTorch has no digit on the scale of the next larger one."""
    ordered = sorted(rows, key=lambda n: n.scale)
    merged: list[Noise] = []
    for n, noise in enumerate(ordered):
        larger = next((m for m in ordered[n + 1 :] if m.own < NOISE), None)
        if noise.own >= NOISE and larger is not None:
            own, own_rms = (v * noise.scale / larger.scale for v in (noise.own, noise.own_rms))
            noise = Noise(
                noise.stratum,
                noise.whole,
                larger.scale,
                own,
                own_rms,
                allowed_error(own, limit, factor),
                allowed_error(own_rms, limit, factor),
                max(factor * own, limit),
                noise.torch * noise.scale / larger.scale,
                noise.slopes,
            )
        merged.append(noise)
    return tuple(merged)


def _systematic(candidate: Array, base: Array, noise: Noise) -> str:
    """Return what a difference is made of where that is no rounding, or an empty string.

    The difference is projected on the output and on a constant. One of them is its main part
    where it has more than half of its energy; by chance it has 1/n.
    """
    finite = np.isfinite(candidate.astype(np.float64)) & np.isfinite(base.astype(np.float64))
    c, b = candidate[finite].astype(np.float64), base[finite].astype(np.float64)
    if c.size < FEW:
        return ""
    d = c - b
    energy = float(d @ d)
    if energy == 0.0:
        return ""
    factor, shift = _slopes(c, b, noise.scale)
    slope = float(d @ b) / (float(b @ b) or 1.0)
    if slope**2 * float(b @ b) > MAIN_SHARE * energy and factor > SURE * noise.slopes[0]:
        return f"c − t is {slope:+.2g} times the output throughout, which rounding is not"
    mean = float(d.mean())
    if mean**2 * d.size > MAIN_SHARE * energy and shift > SURE * noise.slopes[1]:
        return f"c − t is {mean:+.2g} throughout, which rounding is not"
    return ""


def _slopes(x: Array, base: Array, scale: float) -> tuple[float, float]:
    """Return the constant factor and the constant shift (in units of ``scale``) in x - base."""
    a, b = x.astype(np.float64).reshape(-1), base.astype(np.float64).reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    if not a.size:
        return 0.0, 0.0
    d = a - b
    return abs(float(d @ b)) / (float(b @ b) or 1.0), abs(float(d.mean())) / scale


def _decided_by_rounding(
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
    t = expected.astype(np.float64)
    for stratum in strata:
        own = stratum.of(t)
        scale = stratum.scale(_rms(own, 1))
        moved = []
        for answer in answers:
            with np.errstate(invalid="ignore", over="ignore"):
                share = np.abs(stratum.of(answer).astype(np.float64) - own) / (np.abs(own) + scale)
            moved.append(np.nan_to_num(share, nan=0.0, posinf=np.finfo(np.float64).max))
        shares = np.stack(moved)
        bits = np.log2(np.maximum(shares, limit) / limit)
        runs = bits[:moving]
        counts = np.bincount(np.minimum(runs, 1023).astype(np.int64).reshape(-1))
        occupied = np.flatnonzero(counts)
        for low, high in itertools.pairwise(occupied):
            if high - low > _FLIP_BITS and counts[: low + 1].sum() >= _SMOOTH_SHARE * counts.sum():
                part = np.any(bits >= high, axis=0)
                if stratum.mask is None:
                    opened |= part.reshape(expected.shape)
                else:
                    opened[stratum.mask] |= part
                break
    return opened if opened.any() else None


def _nearest(candidate: Array, yard: Yard) -> AutoResult:
    """Hold the open elements against the nearest of PyTorch's answers."""
    assert yard.open is not None
    c = candidate[yard.open].astype(np.float64)
    best = np.full(c.shape, np.inf)
    allowed, scale = np.ones(candidate.shape), np.ones(candidate.shape)
    for noise in yard.noise:
        part = ... if noise.whole.mask is None else noise.whole.mask
        allowed[part], scale[part] = noise.allowed, noise.scale
    for answer in yard.answers:
        a = answer[yard.open].astype(np.float64)
        with np.errstate(invalid="ignore"):
            share = np.abs(c - a) / (np.abs(a) + scale[yard.open])
        share[(np.isnan(c) & np.isnan(a)) | (c == a)] = 0.0
        best = np.fmin(best, share)
    budgets = np.nan_to_num(best, nan=np.inf, posinf=np.inf) / allowed[yard.open]
    position = int(np.argmax(budgets))
    index = int(np.flatnonzero(yard.open.reshape(-1))[position])
    return AutoResult(
        float(budgets[position]),
        float(allowed[yard.open][position]),
        yard.basis,
        index,
        float(best[position]),
        yard.torch_error,
        yard=yard,
    )


def _without(stratum: Stratum, opened: Mask, shape: tuple[int, ...]) -> Stratum:
    mask = ~opened if stratum.mask is None else stratum.mask & ~opened
    return Stratum(np.broadcast_to(mask, shape), stratum.usual)


def _rms(values: Array, threads: int) -> float:
    zero = np.broadcast_to(np.zeros((), values.dtype), values.shape)
    return scaled_error(zero, values, 1.0, threads).rms
