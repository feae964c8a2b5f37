"""Every judge is tried before it is believed: what would it have refused?

A check that accepts anything is green whatever the file does: ``top1`` over one column, ``topk: 5``
of four classes, a tolerance wider than the output. So each passing check states its *resolution*,
the smallest share by which the varying part of the output could have been off and been refused;
and each output's judge is given the answer of another case, which it has to refuse.

For ``auto`` the resolution follows from what was allowed (no run, no second comparison); fixed
criteria are tried at a ladder of errors, from the smallest up. The cost is a few passes over the
output, once an output for large ones.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import compare
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.auto import AutoResult
from onnx_gate.verify.judge.criteria import Metric, fixed_criteria
from onnx_gate.verify.judge.noise import VISIBLE, Mask, Noise

# Elements that the spread of an output is taken from; fewer make the resolution no finer.
_LOOKED_AT = 1 << 22
# Relative errors that fixed criteria are tried with.
_TRIED = (1e-6, 1e-5, 1e-4, 1e-3, VISIBLE, 0.1, 1.0)


def resolution_of(
    expected: Array,
    tolerance: Tolerance,
    metric: Metric | None,
    automatic: AutoResult | None,
) -> float | None:
    """Return the smallest relative error that would have been refused wherever it is.

    In the least protected channel, row or element. Infinite where none of up to 100 % would be;
    ``None`` where the output does not vary, so that there is nothing for it to be wrong about.
    """
    finest = None
    if automatic is not None and automatic.noise.runs:
        finest = least_protected(automatic.noise, automatic.open)
    if _is_fixed(tolerance, metric):
        wrong = _wrong(expected)
        if wrong:
            tried = max(_tried(expected, each, tolerance, metric) for each in wrong)
            finest = tried if finest is None else min(finest, tried)
    return finest


def least_protected(noise: Noise, opened: Mask | None = None) -> float | None:
    """Return the largest limit of an element on the scale of its channel, or of a whole row.

    Of a noise of which there are runs: who is beyond the floor is granted more. An error of a row or
    channel is refused where one of its elements is. What rounding decides (``opened``), and channels
    that are zero throughout, are left out.
    """
    expected = noise.expected
    rows = max(1, _LOOKED_AT // max(expected.shape[-1] if expected.ndim else 1, 1))
    wide = expected.reshape(-1, expected.shape[-1] if expected.ndim > 1 else 1)[:rows]
    sizes, limits = np.abs(wide.astype(np.float64)), noise.limits(slice(0, wide.size))
    limits = limits.reshape(wide.shape)
    good = np.isfinite(sizes)
    if opened is not None:
        good &= ~opened.reshape(-1)[: wide.size].reshape(wide.shape)
    values = wide[good]
    if not values.size or (values == values[0]).all():
        return None
    sizes[~good] = 0.0
    counts = np.maximum(np.count_nonzero(good, axis=0), 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        usual = np.sqrt(np.square(sizes).sum(axis=0) / counts)
        single = limits / np.maximum(sizes, usual)
        whole = np.where(sizes > 0, limits / sizes, np.inf).min(axis=1)
    judged = single[good & (usual > 0)]
    whole = whole[np.isfinite(whole)]
    return max(float(judged.max(initial=0.0)), float(whole.max(initial=0.0)))


def accepts(
    other: Array,
    expected: Array,
    noise: Noise | None,
    tolerance: Tolerance,
    metric: Metric | None,
) -> bool | None:
    """Return whether a judge takes the answer of another case for this one's.

    ``noise`` is what ``auto`` has judged it by, if it has. ``None``
    where the two answers are within a per cent of each other, or of other kinds:
    they are none to try a judge with.
    """
    if other.shape != expected.shape or other.dtype != expected.dtype or not expected.size:
        return None
    difference = compare(other, expected)
    if difference.nonfinite or difference.rms <= VISIBLE * difference.expected_rms:
        return None
    if noise is not None and noise.used(other).share > 1:
        return False
    if not _is_fixed(tolerance, metric):
        return noise is not None
    return all(c.holds for c in fixed_criteria(other, expected, difference, tolerance, metric, 1))


def _is_fixed(tolerance: Tolerance, metric: Metric | None) -> bool:
    named = ("atol", "rtol", "cosine", "snr_db", "top1", "topk", "max_ulp")
    return metric is not None or any(getattr(tolerance, name) is not None for name in named)


def _wrong(expected: Array) -> list[Array]:
    """Return what varies of an output: all of it, and of its least channel and row alone."""
    wide = expected.astype(np.float64)
    finite = np.isfinite(wide)
    mean = wide[finite].mean() if np.count_nonzero(finite) > 1 else 0.0
    varying = np.where(finite, wide - mean, 0.0)
    if not np.any(varying):
        return []
    made = [varying]
    if expected.ndim > 1 and expected.size <= _LOOKED_AT:
        table = varying.reshape(-1, expected.shape[-1])
        for axis in (0, 1):
            energy = np.square(table).sum(axis=1 - axis)
            least = int(np.argmin(np.where(energy > 0, energy, np.inf)))
            alone = np.zeros_like(table)
            part: tuple[int | slice, ...] = (least,) if axis == 0 else (slice(None), least)
            alone[part] = table[part]
            made.append(alone.reshape(expected.shape))
    return made


def _tried(expected: Array, varying: Array, tolerance: Tolerance, metric: Metric | None) -> float:
    wide = expected.astype(np.float64)
    for share in _TRIED:
        wrong = wide + share * varying
        if expected.dtype.kind in "iub":
            wrong = np.rint(wrong)
        actual = wrong.astype(expected.dtype)
        comparison = compare(actual, expected)
        criteria = fixed_criteria(actual, expected, comparison, tolerance, metric, 1)
        if not all(c.holds for c in criteria):
            return share
    return math.inf
