"""One output of one case on one runtime: the comparison, the tolerance, and the verdict.

The candidate is held against PyTorch's answer first. Only where that would be a divergence are
PyTorch's *other* answers asked for (``reference.variants``): runs in which what PyTorch leaves
open was decided the other way. Element by element, the answer that is nearest to the candidate
then stands for PyTorch's. Where all of PyTorch's answers agree that changes nothing; where they do
not, the element is *open*, is counted, and says nothing about the elements beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import Comparison, compare
from onnx_gate.report.model import Form, Metrics, OpenCause, Worst
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.auto import FLOOR, AutoResult, against, auto, eps_of
from onnx_gate.verify.judge.criteria import Criterion, Metric, fixed_criteria
from onnx_gate.verify.judge.indices import point_at_equals
from onnx_gate.verify.judge.scale import Mask, Stratum
from onnx_gate.verify.judge.selftest import resolution_of
from onnx_gate.verify.reference.oracle import OtherAnswer, Reference

# PyTorch's own error from which on a check is worth a word, on the scale of E.
ILL_CONDITIONED = 0.02


@dataclass(frozen=True)
class Rules:
    """What an output is judged by.

    ``own_tolerance`` says that the manifest names the tolerance for this very output, so that it
    speaks of integers too. ``eps`` is that of the widest floating-point dtype the model computes
    in, which bounds the precision that a float64 output of a float32 model can have.
    """

    tolerance: Tolerance
    own_tolerance: bool = False
    metric: Metric | None = None
    eps: float = 0.0
    threads: int = 1

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

    ``ill_conditioned``: PyTorch's own error is large enough to hide faults. ``uncapped``: the
    error is within K times PyTorch's own, and more than is ever allowed. ``compared`` and ``open``
    are numbers of elements, ``causes`` why some are open. ``resolution`` is the smallest relative
    error that would have been refused. ``form`` is what of the output's form is not PyTorch's.
    """

    holds: bool
    budget: float
    reason: str
    metrics: Metrics | None = None
    worst: Worst | None = None
    tolerance: dict[str, Any] = field(default_factory=dict)
    ill_conditioned: bool = False
    uncapped: bool = False
    compared: int = 0
    open: int = 0
    causes: tuple[OpenCause, ...] = ()
    resolution: float | None = None
    form: Form | None = None


def judge(
    candidate: Array,
    expected: Array,
    rules: Rules,
    strata: Sequence[Stratum],
    reference: Reference,
) -> Judgement:
    """Compare ``candidate`` with PyTorch's ``expected`` and say whether the difference is allowed.

    Shape and dtype must be equal, without broadcasting. NaN must meet NaN and an infinity the
    same infinity, whatever the tolerance. ``strata`` part the elements of ``expected``.
    """
    if candidate.dtype != expected.dtype:
        return _broken("dtype", f"dtype {candidate.dtype} where PyTorch has {expected.dtype}")
    if candidate.shape != expected.shape:
        return _other_shape(candidate, expected, rules, reference)
    if expected.dtype.kind in "OSU":
        same = bool(np.array_equal(candidate, expected))
        return Judgement(
            same,
            0.0 if same else math.inf,
            "" if same else "strings differ",
            compared=expected.size,
        )
    if is_floating(expected.dtype):
        return _judge_floats(candidate, expected, rules, strata, reference)
    return _judge_integers(candidate, expected, rules, reference)


def is_floating(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is floating-point, bfloat16 included."""
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


@dataclass(frozen=True)
class _Nearest:
    """Of PyTorch's answers, at each element, the one nearest to the candidate.

    ``open`` are the elements at which the answers differ by more than is allowed.
    """

    expected: Array
    float64: Array | None
    open: Mask
    causes: tuple[OpenCause, ...]


def _judge_floats(
    candidate: Array,
    expected: Array,
    rules: Rules,
    strata: Sequence[Stratum],
    reference: Reference,
) -> Judgement:
    plain, automatic = _hold_against(candidate, expected, None, None, rules, strata, reference)
    if plain.holds:
        return plain
    others = [o for o in reference.variants() if o.array.shape == expected.shape]
    if not others:
        return plain
    nearest = _nearest(candidate, expected, reference.float64(), others, automatic, strata)
    if not nearest.open.any():
        return plain
    if automatic is None and rules.tolerance.auto is not None:
        # NaN on one side only: what the other elements may be wrong by is not known yet.
        aligned = np.where(np.isfinite(candidate), candidate, expected).astype(expected.dtype)
        _, automatic = _hold_against(aligned, expected, None, None, rules, strata, reference)
    judged, _ = _hold_against(candidate, expected, nearest, automatic, rules, strata, reference)
    return judged


def _hold_against(
    candidate: Array,
    expected: Array,
    nearest: _Nearest | None,
    before: AutoResult | None,
    rules: Rules,
    strata: Sequence[Stratum],
    reference: Reference,
) -> tuple[Judgement, AutoResult | None]:
    """Judge against PyTorch's answer, or against the ``nearest`` of its answers.

    ``before`` is how ``auto`` measured PyTorch's own error in its first answer.
    """
    answer = expected if nearest is None else nearest.expected
    opened = None if nearest is None else nearest.open
    causes: tuple[OpenCause, ...] = () if nearest is None else nearest.causes
    found = compare(candidate, answer, threads=rules.threads)
    if found.nonfinite:
        candidate, answer = _saturated(candidate, answer, reference)
        found = compare(candidate, answer, threads=rules.threads)
    described = _describe(rules.tolerance)
    if found.nonfinite:
        return _nonfinite(candidate, answer, found, described), None
    criteria: list[Criterion] = []
    automatic: AutoResult | None = None
    if rules.tolerance.auto is not None:
        if nearest is not None and before is not None and before.yard is not None:
            base = answer if nearest.float64 is None else nearest.float64
            automatic = against(candidate, before.yard, rules.threads, base)
        else:
            eps = max(eps_of(expected.dtype), rules.eps if expected.dtype == np.float64 else 0.0)
            automatic = auto(
                candidate,
                answer,
                strata,
                rules.tolerance.auto,
                eps,
                FLOOR[str(expected.dtype)],
                reference,
                rules.threads,
            )
        if automatic.yard is not None and automatic.yard.open is not None:
            decided = automatic.yard.open
            opened = decided if opened is None else opened | decided
            causes = (*causes, "rounding")
        described |= {"basis": automatic.basis, "allowed": automatic.allowed}
        criteria.append(_criterion(automatic))
    criteria += fixed_criteria(
        candidate, answer, found, rules.tolerance, rules.metric, rules.threads
    )
    judged = _conclude(candidate, answer, found, criteria, automatic, described)
    if opened is None:
        judged = replace(judged, compared=found.finite)
    else:
        compared = np.isfinite(candidate.astype(np.float64)) & ~opened
        judged = replace(
            judged,
            compared=int(np.count_nonzero(compared)),
            open=int(np.count_nonzero(opened)),
            causes=causes,
        )
    if judged.holds:
        finest = resolution_of(answer, rules.tolerance, rules.metric, automatic, strata)
        judged = replace(judged, resolution=finest)
    return judged, automatic


def _criterion(automatic: AutoResult) -> Criterion:
    return Criterion(
        "error",
        automatic.budget * automatic.allowed,
        automatic.allowed,
        automatic.budget,
        automatic.index,
        automatic.systematic,
    )


def _nearest(
    candidate: Array,
    expected: Array,
    in_float64: Array | None,
    others: Sequence[OtherAnswer],
    automatic: AutoResult | None,
    strata: Sequence[Stratum],
) -> _Nearest:
    """Choose PyTorch's answer for each element; ``automatic`` knows what rounding may move."""
    c, best = candidate.astype(np.float64), expected.copy()
    base = None if in_float64 is None else in_float64.astype(np.float64)
    limits = _limits(expected, automatic, strata)
    distance = _distance(c, expected.astype(np.float64))
    opened = np.zeros(expected.shape, np.bool_)
    causes: list[OpenCause] = []
    for other in others:
        value = other.array.astype(np.float64)
        moved = _distance(value, expected.astype(np.float64)) > limits
        if moved.any():
            opened |= moved
            causes.append(other.cause)
        near = _distance(c, value)
        closer = near < distance
        distance = np.where(closer, near, distance)
        best[closer] = other.array[closer]
        if base is not None:
            base[closer] = (other.array if other.float64 is None else other.float64)[closer]
    return _Nearest(best, base, opened, tuple(dict.fromkeys(causes)))


def _distance(a: Array, b: Array) -> Array:
    """Return |a - b|, 0 where both are NaN or the same infinity, infinite where one is."""
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.abs(a - b)
    d[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    distance: Array = np.nan_to_num(d, nan=np.inf, posinf=np.inf)
    return distance


def _limits(expected: Array, automatic: AutoResult | None, strata: Sequence[Stratum]) -> Array:
    """Return the difference, element by element, from which on two answers are two."""
    size = np.abs(np.nan_to_num(expected.astype(np.float64), posinf=0.0, neginf=0.0))
    if automatic is not None and automatic.yard is not None:
        limits = np.zeros(expected.shape)
        for noise in automatic.yard.noise:
            part = ... if noise.whole.mask is None else noise.whole.mask
            limits[part] = noise.allowed * (size[part] + noise.scale)
        return limits
    limit = FLOOR[str(expected.dtype)] * eps_of(expected.dtype)
    limits = np.zeros(expected.shape)
    for stratum in strata:
        part = ... if stratum.mask is None else stratum.mask
        scale = stratum.scale(float(np.sqrt(np.mean(np.square(size[part])))) if size.size else 0.0)
        limits[part] = limit * (size[part] + scale)
    return limits


def _conclude(
    candidate: Array,
    expected: Array,
    found: Comparison,
    criteria: list[Criterion],
    automatic: AutoResult | None,
    described: dict[str, Any],
) -> Judgement:
    decisive = max(criteria, key=lambda c: math.inf if math.isnan(c.budget) else c.budget)
    holds = all(criterion.holds for criterion in criteria)
    index = decisive.index if decisive.index >= 0 else found.max_abs_index
    reference = None
    if automatic is not None and automatic.yard is not None and automatic.basis != "floor":
        reference = automatic.yard.base
    reason = "" if holds else "; ".join(c.describe() for c in criteria if not c.holds)
    torch_error = automatic.torch_error if automatic is not None else None
    if not holds and torch_error is not None:
        reason += f" (PyTorch's own rounding is {torch_error:.2g})"
    return Judgement(
        holds,
        decisive.budget,
        reason,
        _metrics(found, automatic, criteria),
        _worst(candidate, expected, reference, index),
        described,
        ill_conditioned=torch_error is not None and torch_error > ILL_CONDITIONED,
        uncapped=automatic is not None
        and automatic.uncapped
        and all(c.holds for c in criteria[1:]),
    )


def _judge_integers(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> Judgement:
    found = compare(candidate, expected, threads=rules.threads)
    described = _describe(rules.tolerance)
    if not found.exceeding:
        return Judgement(
            True, 0.0, "", _metrics(found), None, {"equal": True}, compared=expected.size
        )
    worst = _worst(candidate, expected, None, found.exceeding_index)
    tolerance = rules.tolerance
    if not rules.equality(expected.dtype):
        criteria = list(
            fixed_criteria(candidate, expected, found, tolerance, rules.metric, rules.threads)
        )
        judged = _conclude(candidate, expected, found, criteria, None, described)
        finest = resolution_of(expected, tolerance, rules.metric, None, (Stratum(None),))
        return replace(judged, compared=expected.size, resolution=finest)
    if tolerance.indices == "values":
        opened, causes = _open_integers(candidate, expected, rules, reference)
        if not np.any((candidate != expected) & ~opened):
            count = int(np.count_nonzero(opened))
            return Judgement(
                True,
                0.0,
                f"{found.exceeding} of {found.elements} elements differ where PyTorch's answer is "
                f"open: {', '.join(causes)}",
                _metrics(found),
                worst,
                {"indices": "values"},
                compared=expected.size - count,
                open=count,
                causes=causes,
            )
    return Judgement(
        False,
        math.inf,
        f"{found.exceeding} of {found.elements} elements differ from PyTorch's",
        _metrics(found),
        worst,
        {"equal": True},
        compared=expected.size,
    )


def _open_integers(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> tuple[Mask, tuple[OpenCause, ...]]:
    """Return the elements that differ and are one of PyTorch's answers, and why."""
    differs = candidate != expected
    opened = np.zeros_like(differs)
    causes: list[OpenCause] = []

    def take(cause: OpenCause, part: Mask) -> None:
        part = part & differs
        if part.any():
            causes.append(cause)
            np.logical_or(opened, part, out=opened)

    searched = reference.searched()
    if searched is not None:
        equal = point_at_equals(candidate, expected, searched, rules.tolerance.auto or 10.0)
        if equal is not None:
            take("order of equals", equal)
        if searched.own.promises_first:
            # Its other answers are judged by what they point at, and by nothing else.
            return opened, tuple(dict.fromkeys(causes))
    for other in reference.variants() if np.any(differs & ~opened) else ():
        if other.array.shape == expected.shape:
            take(other.cause, other.array == candidate)
    if np.any(differs & ~opened):
        in_float64 = reference.float64()
        runs = [*reference.rounding(more=True), *([] if in_float64 is None else [in_float64])]
        for run in runs:
            if run.shape == expected.shape:
                take("rounding", run == candidate)
    return opened, tuple(dict.fromkeys(causes))


class _Settled:
    """An answer with nothing more to ask about, but for the runs with moved rounding like it."""

    def __init__(self, samples: Sequence[Array]) -> None:
        self._samples = samples

    def float64(self) -> None:
        return None

    def rounding(self, more: bool = False) -> Sequence[Array]:
        return self._samples

    def variants(self) -> Sequence[OtherAnswer]:
        return ()

    def searched(self) -> None:
        return None


def _other_shape(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> Judgement:
    """Judge an output of another shape: right where rounding, or equals, decide the shape."""
    if len(candidate.shape) == len(expected.shape):
        runs: list[tuple[OpenCause, Array]] = [("rounding", r) for r in reference.rounding()]
        if any(run.shape != expected.shape for _, run in runs):
            runs += [("rounding", r) for r in reference.rounding(more=True)]
            runs += [(o.cause, o.array) for o in reference.variants()]
        like = [(cause, run) for cause, run in runs if run.shape == candidate.shape]
        for cause, run in like:
            settled = _Settled([other for _, other in like])
            judged = judge(candidate, run, rules, (Stratum(None),), settled)
            if judged.holds:
                opened = max(candidate.size, 1)
                return replace(judged, compared=0, open=opened, causes=(cause,), resolution=None)
    return _broken(
        "shape", f"shape {list(candidate.shape)} where PyTorch has {list(expected.shape)}"
    )


def _saturated(candidate: Array, expected: Array, reference: Reference) -> tuple[Array, Array]:
    """Take an infinity for the dtype's largest number where rounding decides about overflow.

    That is: one side is infinite, the other finite and within rounding of the dtype's largest
    number, and float64 is finite and as large. What is left of the difference is judged.
    """
    info = ml_dtypes.finfo(expected.dtype)
    largest = float(info.max)
    near = largest * (1 - 100 * float(info.eps))
    c, t = candidate.astype(np.float64), expected.astype(np.float64)
    one_sided = (np.isinf(c) != np.isinf(t)) & (np.sign(c) == np.sign(t))
    one_sided &= (np.abs(c) >= near) & (np.abs(t) >= near)
    if not bool(np.any(one_sided)):
        return candidate, expected
    in_float64 = reference.float64()
    if in_float64 is None or in_float64.shape != candidate.shape:
        return candidate, expected
    r = in_float64.astype(np.float64)
    one_sided &= np.isfinite(r) & (np.abs(r) >= near) & (np.sign(r) == np.sign(t))
    both = (np.where(one_sided & np.isinf(x), np.sign(x) * largest, x) for x in (c, t))
    first, second = (x.astype(expected.dtype) for x in both)
    return first, second


def _nonfinite(
    candidate: Array, expected: Array, found: Comparison, described: dict[str, Any]
) -> Judgement:
    index = found.nonfinite_index
    at = _unravel(index, expected.shape)
    actual, wanted = _float(candidate, index), _float(expected, index)
    return Judgement(
        False,
        math.inf,
        f"{_shown(actual)} at {list(at)} where PyTorch has {_shown(wanted)} "
        f"({found.nonfinite} of {found.elements} elements)",
        _metrics(found),
        Worst(index=at, expected=wanted, actual=actual),
        described,
        compared=found.finite,
    )


def _broken(form: Form, reason: str) -> Judgement:
    return Judgement(False, math.inf, reason, form=form)


def _metrics(
    found: Comparison,
    automatic: AutoResult | None = None,
    criteria: Sequence[Criterion] = (),
) -> Metrics:
    return Metrics(
        elements=found.elements,
        max_abs=found.max_abs,
        max_rel=found.max_rel,
        rms=found.rms,
        cosine=found.cosine,
        snr_db=found.snr_db,
        exceeding=found.exceeding,
        nonfinite=found.nonfinite,
        scaled=automatic.error if automatic and automatic.basis != "floor" else None,
        scaled_torch=automatic.torch_error if automatic else None,
        criteria={c.name: c.value for c in criteria if c.name != "error"},
    )


def _worst(candidate: Array, expected: Array, reference: Array | None, index: int) -> Worst | None:
    if index < 0:
        return None
    return Worst(
        index=_unravel(index, expected.shape),
        expected=_float(expected, index),
        actual=_float(candidate, index),
        reference=None if reference is None else _float(reference, index),
    )


def _describe(tolerance: Tolerance) -> dict[str, Any]:
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


def _unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()


def _float(array: Array, index: int) -> float:
    return float(array.reshape(-1)[index]) if array.size else math.nan


def _shown(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.6g}"
