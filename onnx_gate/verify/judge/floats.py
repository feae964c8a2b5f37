"""Floating-point outputs: against PyTorch's answer, then against the nearest of its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from onnx_gate.numerics.compare import Comparison, compare
from onnx_gate.numerics.precision import eps_of
from onnx_gate.report.model import Deviation, OpenCause, Worst
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.auto import AutoResult, against, auto
from onnx_gate.verify.judge.criteria import Criterion, fixed_criteria
from onnx_gate.verify.judge.judgement import (
    Judgement,
    Rules,
    by_criteria,
    describe,
    metrics_of,
    shown,
    unravel,
    value_at,
)
from onnx_gate.verify.judge.noise import FLOOR, Terms
from onnx_gate.verify.judge.scale import Mask, Stratum
from onnx_gate.verify.judge.selftest import resolution_of
from onnx_gate.verify.reference.oracle import OtherAnswer, Reference


@dataclass(frozen=True)
class _Nearest:
    """Of PyTorch's answers, at each element, the one nearest to the candidate.

    ``open`` are the elements at which the answers differ by more than is allowed.
    """

    expected: Array
    float64: Array | None
    open: Mask
    causes: tuple[OpenCause, ...]


def judge_floats(
    candidate: Array,
    expected: Array,
    rules: Rules,
    strata: Sequence[Stratum],
    reference: Reference,
) -> Judgement:
    """Judge one floating-point output of PyTorch's shape and dtype."""
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
    comparison = compare(candidate, answer, threads=rules.threads)
    if comparison.nonfinite:
        candidate, answer = _saturated(candidate, answer, reference)
        comparison = compare(candidate, answer, threads=rules.threads)
    described = describe(rules.tolerance)
    if comparison.nonfinite:
        return _nonfinite(candidate, answer, comparison, rules, described), None
    criteria: list[Criterion] = []
    automatic: AutoResult | None = None
    if rules.tolerance.auto is not None:
        if nearest is not None and before is not None and before.yard is not None:
            base = answer if nearest.float64 is None else nearest.float64
            automatic = against(candidate, before.yard, rules.threads, base)
        else:
            eps = max(eps_of(expected.dtype), rules.eps if expected.dtype == np.float64 else 0.0)
            terms = Terms(rules.tolerance.auto, FLOOR[str(expected.dtype)] * eps, rules.threads)
            widest = expected.dtype == np.float64 and eps == eps_of(expected.dtype)
            known = _WithoutFloat64(reference) if widest else reference
            automatic = auto(candidate, answer, strata, terms, known)
        if automatic.yard is not None and automatic.yard.open is not None:
            decided = automatic.yard.open
            opened = decided if opened is None else opened | decided
            causes = (*causes, "rounding")
        described |= {"basis": automatic.basis, "allowed": automatic.allowed}
        criteria.append(_criterion(automatic, rules))
    criteria += fixed_criteria(
        candidate, answer, comparison, rules.tolerance, rules.metric, rules.threads
    )
    judged = by_criteria(candidate, answer, comparison, criteria, automatic, rules, described)
    if opened is None:
        judged = replace(judged, compared=comparison.finite)
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


def _criterion(automatic: AutoResult, rules: Rules) -> Criterion:
    systematic = automatic.systematic
    if systematic is not None:
        return Criterion(
            systematic.measure,
            abs(systematic.value),
            systematic.allowed,
            automatic.budget,
            automatic.index,
            systematic.sentence(rules.against),
        )
    mean = automatic.by_mean
    return Criterion(
        "mean error" if mean else "error",
        automatic.mean if mean else automatic.error,
        automatic.allowed_mean if mean else automatic.allowed,
        automatic.budget,
        automatic.index,
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


class _WithoutFloat64:
    """What PyTorch says of a model that computes in float64 itself, which is no wider reference."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def float64(self) -> None:
        return None

    def rounding(self, more: bool = False) -> Sequence[Array]:
        return self._reference.rounding(more)


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
    candidate: Array,
    expected: Array,
    comparison: Comparison,
    rules: Rules,
    described: dict[str, Any],
) -> Judgement:
    index = comparison.nonfinite_index
    at = unravel(index, expected.shape)
    actual, wanted = value_at(candidate, index), value_at(expected, index)
    return Judgement(
        False,
        math.inf,
        f"{shown(actual)} at {list(at)} where {rules.against} has {shown(wanted)} "
        f"({comparison.nonfinite} of {comparison.elements} elements)",
        metrics_of(comparison),
        Worst(index=at, expected=wanted, actual=actual),
        Deviation(value=math.inf, allowed=0.0),
        described,
        compared=comparison.finite,
    )
