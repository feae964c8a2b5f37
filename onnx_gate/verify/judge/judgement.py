"""What an output is judged by, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.manifest.spec import Against
from onnx_gate.numerics.compare import Comparison
from onnx_gate.report.model import Deviation, Form, Metrics, OpenCause, Worst
from onnx_gate.report.story.summary import ERRORS
from onnx_gate.runtimes.base import Array
from onnx_gate.text import number
from onnx_gate.verify.judge.auto import AutoResult
from onnx_gate.verify.judge.criteria import Criterion, Metric
from onnx_gate.verify.judge.noise import Mask, Noise, distance
from onnx_gate.verify.judge.systematic import Lean


@dataclass(frozen=True)
class Rules:
    """What an output is judged by.

    ``own_tolerance`` says that the manifest names the tolerance for this very output, so that it
    speaks of integers too. ``against`` is what sentences call the side that is right. Without
    ``resolves`` no resolution is looked for: the faults that are tried take longer than the verdict.
    ``refused``: other cases have settled that the output is wrong. ``settled``: and this one was looked
    for beside them, so that no verdict hangs on whether another answer than PyTorch's is as right.
    """

    tolerance: Tolerance
    own_tolerance: bool = False
    metric: Metric | None = None
    threads: int = 1
    against: Against = "PyTorch"
    resolves: bool = True
    refused: bool = False
    settled: bool = False

    def equality(self, dtype: np.dtype[np.generic]) -> bool:
        """Return whether values of ``dtype`` have to be equal."""
        return not is_floating(dtype) and not (self.own_tolerance and self.fixed)

    @property
    def fixed(self) -> bool:
        """Whether the tolerance names a criterion that integers can be judged by."""
        t = self.tolerance
        named = (t.atol, t.rtol, t.cosine, t.snr_db, self.metric)
        return any(value is not None for value in named)


@dataclass(frozen=True)
class Judgement:
    """The verdict on one output, with everything that the report says about it.

    ``systematic``: the difference is of a kind that rounding never makes, by ``lean``, its sums.
    ``compared`` and ``open`` are numbers of elements, ``causes`` why some are open, ``opened`` which.
    ``form`` is what of the output's form is not PyTorch's.
    """

    holds: bool
    budget: float
    reason: str
    metrics: Metrics | None = None
    worst: Worst | None = None
    deviation: Deviation | None = None
    tolerance: dict[str, Any] = field(default_factory=dict)
    systematic: bool = False
    lean: Lean | None = field(default=None, repr=False)
    noise: Noise | None = field(default=None, repr=False)
    compared: int = 0
    open: int = 0
    causes: tuple[OpenCause, ...] = ()
    opened: Mask | None = field(default=None, repr=False)
    form: Form | None = None


def is_floating(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is floating-point, bfloat16 included."""
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def by_criteria(
    candidate: Array,
    expected: Array,
    comparison: Comparison,
    criteria: list[Criterion],
    automatic: AutoResult | None,
    rules: Rules,
    described: dict[str, Any],
) -> Judgement:
    """Return the judgement of criteria that all have to hold; the first is that of ``auto``."""
    decisive = max(criteria, key=lambda c: math.inf if math.isnan(c.budget) else c.budget)
    holds = all(criterion.holds for criterion in criteria)
    index = decisive.index if decisive.index >= 0 else comparison.max_abs_index
    moved = 0.0
    reason = "" if holds else "; ".join(c.describe() for c in criteria if not c.holds)
    if automatic is not None and decisive is criteria[0] and decisive.name == "error" and not holds:
        moved = automatic.moved
    if moved:
        reason += f" ({rules.against}'s own rounding moves this element by {number(moved)})"
    return Judgement(
        holds,
        decisive.budget,
        reason,
        metrics_of(
            comparison, automatic, criteria, None if holds else element_error(candidate, expected)
        ),
        worst_of(candidate, expected, index),
        decisive.deviation,
        described,
        systematic=automatic is not None and automatic.systematic is not None,
        lean=automatic.lean if automatic is not None else None,
        noise=automatic.noise if automatic is not None else None,
    )


def broken(form: Form, reason: str) -> Judgement:
    """Return the judgement of an output of another form."""
    return Judgement(False, math.inf, reason, form=form)


def metrics_of(
    comparison: Comparison,
    automatic: AutoResult | None = None,
    criteria: Sequence[Criterion] = (),
    scaled: float | None = None,
) -> Metrics:
    """Return the metrics of a comparison, as the report has them."""
    error = next((c for c in criteria if c.name == "error"), None)
    return Metrics(
        elements=comparison.elements,
        max_abs=comparison.max_abs,
        max_rel=comparison.max_rel,
        rms=comparison.rms,
        cosine=comparison.cosine,
        snr_db=comparison.snr_db,
        exceeding=comparison.exceeding,
        nonfinite=comparison.nonfinite,
        scaled=scaled,
        rounding=None
        if error is None or automatic is None or automatic.basis == "floor"
        else automatic.moved,
        criteria={c.name: c.value for c in criteria if c.name not in ERRORS},
    )


def worst_of(candidate: Array, expected: Array, index: int) -> Worst | None:
    """Return the element at a flat index with both values, ``None`` for -1."""
    if index < 0:
        return None
    return Worst(
        index=unravel(index, expected.shape),
        expected=value_at(expected, index),
        actual=value_at(candidate, index),
    )


def describe(tolerance: Tolerance) -> dict[str, Any]:
    """Return what a tolerance names, as the report has it."""
    described: dict[str, Any] = {}
    for name in ("auto", "atol", "rtol", "cosine", "snr_db", "top1", "max_ulp", "metric", "max"):
        value = getattr(tolerance, name)
        if value is not None:
            described[name] = value
    if tolerance.mismatch:
        described["mismatch"] = tolerance.mismatch
    if tolerance.topk is not None:
        described["topk"] = {"k": tolerance.topk.k, "agreement": tolerance.topk.agreement}
    return described


def unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of the element at a flat index."""
    return tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()


def value_at(array: Array, index: int) -> float:
    """Return the element at a flat index, NaN where there is none."""
    return float(array.reshape(-1)[index]) if array.size else math.nan


def shown(value: float) -> str:
    """Return a value with six digits."""
    return "NaN" if math.isnan(value) else f"{value:.6g}"


# So many numbers have a root mean square that says what is usual among them.
_USUAL = 8


def element_error(candidate: Array, expected: Array) -> float:
    """Return the largest difference of an element, on the scale of itself and of its own kind.

    Its kind is what is smaller, the root mean square of its channel (the last axis) or of its row,
    where they have as many elements as tell one, else of all.
    """
    e = expected.reshape(-1, expected.shape[-1] if expected.ndim else 1).astype(np.float64)
    off = distance(candidate.reshape(e.shape), e)
    e[~np.isfinite(e)] = 0.0
    kind = np.full(e.shape, np.sqrt(np.mean(np.square(e))) if e.size else 0.0)
    for axis in (0, 1):
        if e.shape[axis] >= _USUAL:
            np.minimum(kind, np.sqrt(np.mean(np.square(e), axis=axis, keepdims=True)), out=kind)
    size = np.abs(e) + kind
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(off > 0, off / size, 0.0), initial=0.0))
