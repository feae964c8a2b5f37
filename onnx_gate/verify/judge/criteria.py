"""The criteria of a tolerance other than ``auto``: pure functions of both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import Comparison, compare, max_ulp, scaled_error
from onnx_gate.report.model import Deviation
from onnx_gate.report.model.check import Limit
from onnx_gate.report.story.summary import deviation_sentence
from onnx_gate.runtimes.base import Array

Metric = Callable[[Array, Array], float]


@dataclass(frozen=True)
class Criterion:
    """One criterion, judged: ``budget`` is the share of what is allowed that was used.

    ``index`` is the flat index of the element that decided, -1 where none did. ``why`` is a reason
    beside the numbers. ``unit`` and ``key`` (its criterion) are those of a ``Deviation``.
    """

    name: str
    value: float
    allowed: float
    budget: float
    index: int = -1
    why: str = ""
    unit: Literal["error", "agreement", "dB"] = "error"
    key: Limit = "auto"

    @property
    def holds(self) -> bool:
        """Return whether the criterion is met; a value that is NaN meets nothing."""
        return self.budget <= 1.0

    def describe(self) -> str:
        """Return ``cosine 0.98 where 0.995 is allowed``, with digits that tell the two apart."""
        return self.why or deviation_sentence(self.deviation)

    @property
    def deviation(self) -> Deviation:
        """The same as the report has it."""
        return Deviation(
            measure=self.name,
            value=self.value,
            allowed=self.allowed,
            unit=self.unit,
            criterion=self.key,
        )


def fixed_criteria(
    actual: Array,
    expected: Array,
    comparison: Comparison,
    tolerance: Tolerance,
    metric: Metric | None,
    threads: int,
) -> Iterator[Criterion]:
    """Yield every criterion but ``auto`` that ``tolerance`` names, judged on one output.

    ``comparison`` is the comparison of the same two arrays. Formulas: ``atol``/``rtol`` as
    ``numpy.allclose``; ``cosine`` of the flattened outputs; ``snr_db`` = 20 log10(|e| / |a - e|);
    ``top1`` and ``topk`` over the last axis.
    """
    if tolerance.atol is not None or tolerance.rtol is not None:
        yield _close(actual, expected, comparison, tolerance, threads)
    if tolerance.cosine is not None:
        value = 1.0 if comparison.cosine is None else comparison.cosine
        yield _agreement("cosine", "cosine", value, tolerance.cosine)
    if tolerance.snr_db is not None:
        value = math.inf if comparison.snr_db is None else comparison.snr_db
        budget = 0.0 if value == math.inf else _power(10.0, (tolerance.snr_db - value) / 20)
        yield Criterion(
            "snr_db",
            value,
            tolerance.snr_db,
            budget,
            comparison.max_abs_index,
            unit="dB",
            key="snr_db",
        )
    if tolerance.top1 is not None:
        value, index = top_agreement(actual, expected, 1)
        yield _agreement("top1", "top1", value, tolerance.top1, index)
    if tolerance.topk is not None:
        value, index = top_agreement(actual, expected, tolerance.topk.k)
        yield _agreement("topk", f"top{tolerance.topk.k}", value, tolerance.topk.agreement, index)
    if tolerance.max_ulp is not None:
        distance, index = max_ulp(actual, expected)
        yield Criterion(
            "max_ulp",
            distance,
            tolerance.max_ulp,
            _ratio(distance, tolerance.max_ulp),
            index,
            key="max_ulp",
        )
    if metric is not None and tolerance.max is not None:
        value = float(metric(expected, actual))
        budget = math.inf if math.isnan(value) else _ratio(max(value, 0.0), tolerance.max)
        if value <= tolerance.max:
            budget = min(budget, 1.0)
        yield Criterion("metric", value, tolerance.max, budget, key="max")


def _agreement(key: Limit, name: str, value: float, least: float, index: int = -1) -> Criterion:
    budget = _ratio(1 - value, 1 - least)
    return Criterion(name, value, least, budget, index, unit="agreement", key=key)


def top_agreement(actual: Array, expected: Array, k: int) -> tuple[float, int]:
    """Return the share of rows with the same ``k`` largest entries, and the index of one that is not.

    A row is everything along the last axis. Ties are judged by value: a row agrees where what the
    candidate picks is, in PyTorch's numbers, as large as what PyTorch picks.
    """
    if expected.size == 0:
        return 1.0, -1
    rows_e = expected.reshape(-1, expected.shape[-1] if expected.ndim else 1)
    rows_a = actual.reshape(rows_e.shape)
    k = min(k, rows_e.shape[1])
    largest_e, largest_a = _largest(rows_e, k), _largest(rows_a, k)
    picked_e = np.sort(np.take_along_axis(rows_e, largest_e, axis=1), axis=1)
    picked_a = np.sort(np.take_along_axis(rows_e, largest_a, axis=1), axis=1)
    same = np.all(picked_a == picked_e, axis=1)
    if same.all():
        return 1.0, -1
    row = int(np.argmin(same))
    # Of a row with NaN among its largest both sides may have picked the same places.
    others = np.setdiff1d(largest_a[row], largest_e[row])
    place = int(others[0]) if others.size else int(largest_a[row, 0])
    return float(np.mean(same)), row * rows_e.shape[1] + place


def _largest(rows: Array, k: int) -> Array:
    return np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :k]


def _close(
    actual: Array, expected: Array, comparison: Comparison, tolerance: Tolerance, threads: int
) -> Criterion:
    atol, rtol = tolerance.atol or 0.0, tolerance.rtol or 0.0
    if rtol == 0.0:
        worst, index = _ratio(comparison.max_abs, atol), comparison.max_abs_index
    else:
        # |a - e| / (atol + rtol |e|) is a scaled error with scale atol / rtol, over rtol.
        error = scaled_error(actual, expected, atol / rtol, threads)
        worst, index = error.max / rtol, error.index
    exceeding = compare(actual, expected, atol=atol, rtol=rtol, threads=threads).exceeding
    share = exceeding / max(comparison.elements, 1)
    if tolerance.mismatch > 0:
        allowed = tolerance.mismatch
        budget = _ratio(share, allowed)
        return Criterion("share of elements apart", share, allowed, budget, index, key="mismatch")
    if exceeding:
        worst = max(worst, math.nextafter(1.0, 2.0))
    elif worst > 1.0:
        worst = 1.0  # rounding of the quotient: no element exceeds
    if index < 0:
        return Criterion("error", 0.0, atol, worst, key="atol")
    wanted, got = float(expected.reshape(-1)[index]), float(actual.reshape(-1)[index])
    allowed, off = atol + rtol * abs(wanted), abs(got - wanted)
    if worst > 1.0:
        off = max(off, math.nextafter(allowed, math.inf))
    return Criterion("error", off, allowed, worst, index, key="atol")


def _ratio(used: float, allowed: float) -> float:
    if used <= 0:
        return 0.0
    return used / allowed if allowed > 0 else math.inf


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
