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
from collections.abc import Sequence

import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import compare
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.auto import AutoResult
from onnx_gate.verify.judge.criteria import Metric, fixed_criteria
from onnx_gate.verify.judge.scale import Stratum

# An error of one per cent is one that somebody will notice.
VISIBLE = 0.01
# Elements that the spread of an output is taken from; fewer make the resolution no finer.
_LOOKED_AT = 1 << 22
# Relative errors that fixed criteria are tried with.
_TRIED = (1e-6, 1e-5, 1e-4, 1e-3, VISIBLE, 0.1, 1.0)


def resolution_of(
    expected: Array,
    tolerance: Tolerance,
    metric: Metric | None,
    automatic: AutoResult | None,
    strata: Sequence[Stratum],
) -> float | None:
    """Return the smallest relative error of the output that would have been refused.

    Infinite where none of up to 100 % would be; ``None`` where the output does not vary, so that
    there is nothing for it to be wrong about.
    """
    finest = math.inf
    varies = False
    if automatic is not None and automatic.yard is not None:
        worst = 0.0
        for noise in automatic.yard.noise:
            values = noise.stratum.of(automatic.yard.base).reshape(-1)
            values = values[:: values.size // _LOOKED_AT + 1].astype(np.float64)
            values = values[np.isfinite(values)]
            spread = _spread(values, noise.scale)
            if spread > 0:
                varies = True
                worst = max(worst, noise.allowed / spread)
        finest = min(finest, worst) if varies else finest
    if _is_fixed(tolerance, metric):
        wrong = _wrong(expected, strata)
        if wrong is not None:
            varies = True
            finest = min(finest, _tried(expected, wrong, tolerance, metric))
    return finest if varies else None


def accepts(
    other: Array,
    expected: Array,
    allowed: float,
    tolerance: Tolerance,
    metric: Metric | None,
) -> bool | None:
    """Return whether a judge takes the answer of another case for this one's.

    ``allowed`` is the error that ``auto`` allowed this output, infinite where it does not judge
    it. ``None`` where the two answers are within a per cent of each other, or of other kinds:
    they are none to try a judge with.
    """
    if other.shape != expected.shape or other.dtype != expected.dtype or not expected.size:
        return None
    difference = compare(other, expected)
    if difference.nonfinite or difference.rms <= VISIBLE * difference.expected_rms:
        return None
    if math.isfinite(allowed) and difference.rms > allowed * difference.expected_rms:
        return False
    if not _is_fixed(tolerance, metric):
        return math.isfinite(allowed)
    return all(c.holds for c in fixed_criteria(other, expected, difference, tolerance, metric, 1))


def _is_fixed(tolerance: Tolerance, metric: Metric | None) -> bool:
    named = ("atol", "rtol", "cosine", "snr_db", "top1", "topk", "max_ulp")
    return metric is not None or any(getattr(tolerance, name) is not None for name in named)


def _spread(values: Array, scale: float) -> float:
    """Return the largest |x - mean| / (|x| + scale): what an error of 100 % would be."""
    if values.size < 2:
        return float(np.max(np.abs(values) / (np.abs(values) + scale), initial=0.0))
    return float(np.max(np.abs(values - values.mean()) / (np.abs(values) + scale)))


def _wrong(expected: Array, strata: Sequence[Stratum]) -> Array | None:
    """Return the varying part of each stratum, ``None`` where nothing varies."""
    wide = expected.astype(np.float64)
    varying = np.zeros_like(wide)
    for stratum in strata:
        part = ... if stratum.mask is None else stratum.mask
        values = wide[part]
        finite = np.isfinite(values)
        mean = values[finite].mean() if np.count_nonzero(finite) > 1 else 0.0
        varying[part] = np.where(finite, values - mean, 0.0)
    return varying if np.any(varying) else None


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
