"""One output of one case on one runtime: the comparison, the tolerance, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import Comparison, ScaledError, compare, scaled_error
from onnx_gate.report.model import Form, Metrics, Worst
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.auto import FLOOR, AutoResult, auto, eps_of
from onnx_gate.verify.judge.criteria import Criterion, Metric, fixed_criteria
from onnx_gate.verify.reference.index_source import Origin

# PyTorch's own error from which on a check is worth a word, on the scale of E.
ILL_CONDITIONED = 0.02


class OutputAnchor(Protocol):
    """What PyTorch can say about one output of one case, computed when it is first asked for."""

    def reference(self) -> Array | None:
        """Return the output in float64, ``None`` where the model cannot run in it."""
        ...

    def samples(self) -> Sequence[Array]:
        """Return the output of runs whose operators' rounding was moved."""
        ...

    def origin(self) -> tuple[Origin, Origin | None] | None:
        """Return where an integer output comes from, as PyTorch and as float64 compute it."""
        ...


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


@dataclass(frozen=True)
class Judgement:
    """The verdict on one output, with everything that the report says about it.

    ``ill_conditioned``: PyTorch's own error is large enough to hide faults. ``unsteady``: it is so
    large on these inputs that one run of PyTorch says little about the next.
    """

    holds: bool
    budget: float
    reason: str
    metrics: Metrics | None = None
    worst: Worst | None = None
    tolerance: dict[str, Any] = field(default_factory=dict)
    ill_conditioned: bool = False
    unsteady: bool = False
    form: Form | None = None


def judge(
    candidate: Array, expected: Array, rules: Rules, usual_scale: float, anchor: OutputAnchor
) -> Judgement:
    """Compare ``candidate`` with PyTorch's ``expected`` and say whether the difference is allowed.

    Shape and dtype must be equal, without broadcasting. NaN must meet NaN and an infinity the
    same infinity, whatever the tolerance.
    """
    if candidate.shape != expected.shape:
        return _broken(
            "shape", f"shape {list(candidate.shape)} where PyTorch has {list(expected.shape)}"
        )
    if candidate.dtype != expected.dtype:
        return _broken("dtype", f"dtype {candidate.dtype} where PyTorch has {expected.dtype}")
    if expected.dtype.kind in "OSU":
        same = bool(np.array_equal(candidate, expected))
        return Judgement(same, 0.0 if same else math.inf, "" if same else "strings differ")
    if is_floating(expected.dtype):
        return _judge_floats(candidate, expected, rules, usual_scale, anchor)
    return _judge_integers(candidate, expected, rules, anchor)


def is_floating(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is floating-point, bfloat16 included."""
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def _judge_floats(
    candidate: Array, expected: Array, rules: Rules, usual_scale: float, anchor: OutputAnchor
) -> Judgement:
    found = compare(candidate, expected, threads=rules.threads)
    if found.nonfinite:
        candidate = _saturated(candidate, expected, anchor)
        found = compare(candidate, expected, threads=rules.threads)
    if found.nonfinite:
        index = found.nonfinite_index
        shape_index = _unravel(index, expected.shape)
        values = _float(candidate, index), _float(expected, index)
        return Judgement(
            False,
            math.inf,
            f"{_shown(values[0])} at {list(shape_index)} where PyTorch has {_shown(values[1])} "
            f"({found.nonfinite} of {found.elements} elements)",
            _metrics(found),
            Worst(index=shape_index, expected=values[1], actual=values[0]),
            _describe(rules.tolerance),
        )
    described = _describe(rules.tolerance)
    criteria: list[Criterion] = []
    automatic: AutoResult | None = None
    if rules.tolerance.auto is not None:
        eps = max(eps_of(expected.dtype), rules.eps if expected.dtype == np.float64 else 0.0)
        automatic = auto(
            candidate,
            expected,
            found,
            rules.tolerance.auto,
            usual_scale,
            eps,
            FLOOR[str(expected.dtype)],
            anchor,
            rules.threads,
        )
        described |= {"basis": automatic.basis, "allowed": automatic.allowed}
        criteria.append(
            Criterion(
                "E(c)" if automatic.error is not None else "E(c, t)",
                automatic.budget * automatic.allowed,
                automatic.allowed,
                automatic.budget,
                automatic.index,
            )
        )
    criteria += fixed_criteria(
        candidate, expected, found, rules.tolerance, rules.metric, rules.threads
    )
    return _conclude(candidate, expected, found, criteria, automatic, described)


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
    reference = automatic.reference if automatic is not None else None
    reason = "" if holds else "; ".join(c.describe() for c in criteria if not c.holds)
    torch_error = automatic.torch_error if automatic is not None else None
    if not holds and torch_error is not None and automatic is not None:
        reason += f" (PyTorch's own error is {torch_error:.2g})"
    return Judgement(
        holds,
        decisive.budget,
        reason,
        _metrics(found, automatic, criteria),
        _worst(candidate, expected, reference, index),
        described,
        ill_conditioned=torch_error is not None and torch_error > ILL_CONDITIONED,
        unsteady=automatic is not None and automatic.unsteady,
    )


def _judge_integers(
    candidate: Array, expected: Array, rules: Rules, anchor: OutputAnchor
) -> Judgement:
    found = compare(candidate, expected, threads=rules.threads)
    described = _describe(rules.tolerance)
    if not found.exceeding:
        return Judgement(True, 0.0, "", _metrics(found), None, {"equal": True})
    worst = _worst(candidate, expected, None, found.exceeding_index)
    fixed = rules.own_tolerance and any(
        value is not None
        for value in (
            rules.tolerance.atol,
            rules.tolerance.rtol,
            rules.tolerance.cosine,
            rules.tolerance.snr_db,
            rules.metric,
        )
    )
    if fixed:
        criteria = list(
            fixed_criteria(candidate, expected, found, rules.tolerance, rules.metric, rules.threads)
        )
        return _conclude(candidate, expected, found, criteria, None, described)
    if rules.tolerance.indices == "values":
        excuse = _same_values(candidate, expected, anchor) or _undecided(
            candidate, expected, anchor
        )
        if excuse:
            return Judgement(True, 0.0, excuse, _metrics(found), worst, {"indices": "values"})
    return Judgement(
        False,
        math.inf,
        f"{found.exceeding} of {found.elements} elements differ from PyTorch's",
        _metrics(found),
        worst,
        {"equal": True},
    )


def _same_values(candidate: Array, expected: Array, anchor: OutputAnchor) -> str:
    """Say that both sides' indices point at equal values, or return an empty string.

    Equal means: no further apart in float64 than ten times PyTorch's own error on the values
    that were searched, on each side of the comparison.
    """
    if candidate.dtype.kind not in "iu":
        return ""
    traced = anchor.origin()
    if traced is None:
        return ""
    own, wide = traced
    if not is_floating(own.values.dtype) and own.values.dtype.kind not in "iub":
        return ""
    source = own.values.astype(np.float64)
    eps = eps_of(own.values.dtype) if is_floating(own.values.dtype) else 0.0
    reference = source
    error = ScaledError(0.0, -1, 0.0)
    if wide is not None and wide.values.shape == own.values.shape:
        reference = wide.values.astype(np.float64)
        finite = reference[np.isfinite(reference)]
        scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        error = scaled_error(source, reference, scale or 1.0)
    finite = reference[np.isfinite(reference)]
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    picked_c = own.gather(candidate, reference)
    picked_t = own.gather(expected, reference)
    if picked_c is None or picked_t is None:
        return ""
    allowed = 2 * max(10 * error.max, 10 * eps) * (np.abs(picked_t) + scale)
    with np.errstate(invalid="ignore"):
        close = (np.abs(picked_c - picked_t) <= allowed) | (picked_c == picked_t)
    close |= np.isnan(picked_c) & np.isnan(picked_t)
    if not bool(np.all(close)):
        return ""
    return "the indices differ and point at equal values"


def _undecided(candidate: Array, expected: Array, anchor: OutputAnchor) -> str:
    """Return whether PyTorch itself does not decide the elements that differ, or return ''.

    An element is undecided where runs of PyTorch in float64, or with moved rounding, answer
    differently; the candidate has to give one of their answers there.
    """
    differs = candidate != expected
    explained = np.zeros_like(differs)
    reference = anchor.reference()
    answers = [*([reference] if reference is not None else []), *anchor.samples()]
    for answer in answers:
        if answer.shape == candidate.shape:
            explained |= differs & (answer == candidate)
    if not bool(np.all(explained[differs])):
        return ""
    return (
        f"{int(np.count_nonzero(differs))} elements differ where rounding decides them in "
        "PyTorch as well"
    )


def _saturated(candidate: Array, expected: Array, anchor: OutputAnchor) -> Array:
    """Take an infinity for the value beside it where only rounding decides about overflow.

    That is: one side is infinite, the other finite and within rounding of the dtype's largest
    number, and float64 is finite and as large.
    """
    info = ml_dtypes.finfo(expected.dtype)
    near = float(info.max) * (1 - 100 * float(info.eps))
    a, e = candidate.astype(np.float64), expected.astype(np.float64)
    one_sided = (np.isinf(a) & np.isfinite(e) & (np.abs(e) >= near)) | (
        np.isinf(e) & np.isfinite(a) & (np.abs(a) >= near)
    )
    one_sided &= np.sign(a) == np.sign(e)
    if not bool(np.any(one_sided)):
        return candidate
    reference = anchor.reference()
    if reference is None or reference.shape != candidate.shape:
        return candidate
    r = reference.astype(np.float64)
    one_sided &= np.isfinite(r) & (np.abs(r) >= near) & (np.sign(r) == np.sign(e))
    return np.where(one_sided, expected, candidate)


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
        scaled=automatic.error if automatic else None,
        scaled_torch=automatic.torch_error if automatic else None,
        criteria={c.name: c.value for c in criteria if not c.name.startswith("E(")},
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
