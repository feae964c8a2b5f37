"""Every judge is tried before it is believed: it is given the answer of another case.

A check that accepts anything is green whatever the file does: ``top1`` over one column, ``topk: 5``
of four classes, a tolerance wider than the output.
"""

from __future__ import annotations

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import compare
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.criteria import Metric, fixed_criteria
from onnx_gate.verify.judge.noise import VISIBLE, Noise


def accepts(
    other: Array, expected: Array, noise: Noise | None, tolerance: Tolerance, metric: Metric | None
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
