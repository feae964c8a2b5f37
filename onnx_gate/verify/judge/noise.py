"""PyTorch's own error: how far its answer is from what it should be, by stratum.

``N`` of a stratum is ``E(t)`` against float64, or the largest error of PyTorch and of half of what
its runs with moved rounding have, where those are given. The elements that rounding decides
(``decisions``) are left out: they say nothing about the error of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_gate.numerics.compare import ScaledError, scaled_error
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.decisions import decided_by_rounding
from onnx_gate.verify.judge.scale import Mask, Stratum

# F. Measured for float32; two results of 16 bits that are both rounded well are at most two units
# apart. docs/evidence.md has the tables and the command that makes them.
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


@dataclass(frozen=True)
class Terms:
    """What ``auto`` grants: ``factor`` is K, ``limit`` is F eps, the error granted in any case."""

    factor: float
    limit: float
    threads: int = 1

    def allowed(self, own: float) -> float:
        """Return the error that is allowed where PyTorch's own is ``own``."""
        factor = self.factor
        if own > STEADY and factor > SURE:
            fall = min(np.log(own / STEADY) / np.log(SHAKY / STEADY), 1.0)
            factor = float(factor * (SURE / factor) ** fall)
        return max(min(factor * own, CEILING), self.limit)

    def uncapped(self, own: float) -> float:
        """Return what K alone would allow."""
        return max(self.factor * own, self.limit)


@dataclass(frozen=True)
class Noise:
    """What one stratum may be wrong by.

    ``stratum`` is the elements that are judged so, ``whole`` them and those that rounding
    decides. ``scale`` is s, ``own`` is N, ``own_rms`` the same of the root mean square (relative
    to ``scale``). ``torch`` is E(t), N where there is no float64. ``slopes`` are the shares of a constant
    factor and of a constant shift in PyTorch's own errors.
    """

    stratum: Stratum
    whole: Stratum
    scale: float
    own: float
    own_rms: float
    terms: Terms
    torch: float = 0.0
    slopes: tuple[float, float] = (0.0, 0.0)

    @property
    def allowed(self) -> float:
        """The limit on E."""
        return self.terms.allowed(self.own)

    @property
    def allowed_rms(self) -> float:
        """The limit on the root mean square, relative to the scale."""
        return self.terms.allowed(self.own_rms)

    @property
    def uncapped(self) -> float:
        """What K alone would allow."""
        return self.terms.uncapped(self.own)


@dataclass(frozen=True)
class Yard:
    """How an output is measured: ``base`` is r (or t where there is none), by stratum.

    ``basis`` says what the verdict rests on: ``floor``, ``float64``, or ``rounding`` (moved
    rounding was needed). ``answers`` are PyTorch's at the elements that rounding decides, which
    are ``open``; the first ``runs`` of them are in its own precision.
    """

    base: Array
    basis: str
    noise: tuple[Noise, ...]
    torch_error: float | None = None
    open: Mask | None = None
    answers: tuple[Array, ...] = ()
    runs: int = 0


def measure(
    expected: Array,
    reference: Array | None,
    samples: Sequence[Array],
    strata: Sequence[Stratum],
    terms: Terms,
) -> Yard:
    """Return what each stratum may be wrong by, from PyTorch's own errors."""
    base = expected if reference is None else reference
    basis = "rounding" if samples or reference is None else "float64"
    answers = [expected, *samples, *([reference] if reference is not None else [])]
    opened = None
    if samples:
        opened = decided_by_rounding(expected, answers[1:], len(samples), strata, terms.limit)
    rows: list[Noise] = []
    for stratum in strata:
        kept = stratum if opened is None else _without(stratum, opened, expected.shape)
        elements = kept.of(base)
        scale = stratum.scale(rms_of(elements, terms.threads))
        own = ScaledError(0.0, -1, 0.0)
        if reference is not None:
            own = scaled_error(kept.of(expected), elements, scale, terms.threads)
        worst, mean = own.max, own.rms / scale
        slopes = slopes_of(kept.of(expected), elements, scale)
        slopes = max(slopes[0], terms.limit / 10), max(slopes[1], terms.limit / 10)
        for sample in samples:
            error = scaled_error(kept.of(sample), elements, scale, terms.threads)
            worst = max(worst, MOVED_SHARE * error.max)
            mean = max(mean, MOVED_SHARE * error.rms / scale)
            factor_share, shift_share = slopes_of(kept.of(sample), elements, scale)
            slopes = max(slopes[0], factor_share), max(slopes[1], shift_share)
        rows.append(
            Noise(
                kept,
                stratum,
                scale,
                worst,
                mean,
                terms,
                own.max if reference is not None else worst,
                slopes,
            )
        )
    torch_error = max(n.own for n in rows) if reference is not None or samples else None
    decided = tuple(answers) if opened is not None else ()
    return Yard(base, basis, _merged(rows), torch_error, opened, decided, 1 + len(samples))


def floor_yard(expected: Array, strata: Sequence[Stratum], terms: Terms) -> Yard:
    """Return the yard of an answer that nothing is known about: F eps is all there is."""
    rows = []
    for stratum in strata:
        scale = stratum.scale(rms_of(stratum.of(expected), terms.threads))
        rows.append(Noise(stratum, stratum, scale, 0.0, 0.0, terms))
    return Yard(expected, "floor", tuple(rows))


def slopes_of(x: Array, base: Array, scale: float) -> tuple[float, float]:
    """Return the constant factor and the constant shift (in units of ``scale``) in x - base."""
    a, b = x.astype(np.float64).reshape(-1), base.astype(np.float64).reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    if not a.size:
        return 0.0, 0.0
    d = a - b
    return abs(float(d @ b)) / (float(b @ b) or 1.0), abs(float(d.mean())) / scale


def _merged(rows: Sequence[Noise]) -> tuple[Noise, ...]:
    """Judge a stratum of which PyTorch has no digit on the scale of the next larger one."""
    ordered = sorted(rows, key=lambda n: n.scale)
    merged: list[Noise] = []
    for n, noise in enumerate(ordered):
        larger = next((m for m in ordered[n + 1 :] if m.own < NOISE), None)
        if noise.own >= NOISE and larger is not None:
            shrink = noise.scale / larger.scale
            noise = replace(
                noise,
                scale=larger.scale,
                own=noise.own * shrink,
                own_rms=noise.own_rms * shrink,
                torch=noise.torch * shrink,
            )
        merged.append(noise)
    return tuple(merged)


def _without(stratum: Stratum, opened: Mask, shape: tuple[int, ...]) -> Stratum:
    mask = ~opened if stratum.mask is None else stratum.mask & ~opened
    return Stratum(np.broadcast_to(mask, shape), stratum.usual)


def rms_of(values: Array, threads: int = 1) -> float:
    """Return the root mean square of the finite elements."""
    zero = np.broadcast_to(np.zeros((), values.dtype), values.shape)
    return scaled_error(zero, values, 1.0, threads).rms
