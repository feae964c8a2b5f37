"""Floating-point outputs: against PyTorch's answer, then against the nearest of its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.numerics.compare import Comparison, compare
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
from onnx_gate.verify.judge.noise import VISIBLE, Floats, Mask, Noise, Terms, distance
from onnx_gate.verify.reference.answers import WIDE, OtherAnswer, Reference

# How far a further run goes, in terms of the furthest of the runs that there are: that is 2.2 deviations
# of twenty normal variables, and one in 1e5 is beyond twice of it.
_ONE_MORE = 2.0


@dataclass(frozen=True)
class _Nearest:
    """Of PyTorch's answers, at each element, the one nearest to the candidate, with its noise.

    ``open`` are the elements at which the answers differ by more than is allowed, and those that
    PyTorch's own answer does not explain and another does, however noisy that one is.
    """

    noise: Noise
    open: Mask
    causes: tuple[OpenCause, ...]


def judge_floats(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> Judgement:
    """Judge one floating-point output of PyTorch's shape and dtype."""
    plain, automatic = _hold_against(candidate, expected, rules, reference)
    if plain.holds or rules.settled:
        return plain
    automatically = rules.tolerance.auto is not None
    others = [
        other
        for other in reference.variants()
        if other.array.shape == expected.shape and (automatically or other.cause != "rounding")
    ]
    # What was judged without limits has met NaN or an infinity on one side.
    no_number = automatically and automatic is None and not bool(np.isfinite(expected).all())
    if not others and not no_number:
        return plain
    terms = Terms.of(rules.tolerance.auto or DEFAULT_AUTO, expected.dtype, rules.threads)
    noise = automatic.noise if automatic is not None else Noise(expected, terms, reference)
    if automatically:
        noise.all()
    nearest = _nearest(candidate, noise, others)
    explained = automatically and nearest.noise.used(candidate).share <= 1
    if not nearest.open.any() and not explained:
        return plain
    return _hold_against(candidate, expected, rules, reference, nearest)[0]


def _hold_against(
    candidate: Array,
    expected: Array,
    rules: Rules,
    reference: Reference,
    nearest: _Nearest | None = None,
) -> tuple[Judgement, AutoResult | None]:
    """Judge against PyTorch's answer, or against the ``nearest`` of its answers."""
    answer = expected if nearest is None else nearest.noise.expected
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
        if nearest is not None:
            automatic = against(candidate, answer, nearest.noise)
        else:
            terms = Terms.of(rules.tolerance.auto, expected.dtype, rules.threads)
            automatic = auto(
                candidate, answer, terms, reference, refused=rules.refused, settled=rules.settled
            )
        if automatic.open is not None:
            opened = automatic.open if opened is None else opened | automatic.open
            causes = tuple(dict.fromkeys((*causes, "rounding")))
        described |= {"basis": automatic.basis, "allowed": automatic.allowed}
        criteria.append(_criterion(automatic, rules))
    held, of_held = candidate, comparison
    if opened is not None:  # what was not compared uses nothing of any limit
        held = np.where(opened, answer, candidate)
        of_held = compare(held, answer, threads=rules.threads)
    criteria += fixed_criteria(held, answer, of_held, rules.tolerance, rules.metric, rules.threads)
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
            opened=opened,
        )
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
            f"{systematic.sentence(rules.against)}, which rounding is not",
        )
    error = automatic.budget * automatic.allowed
    return Criterion("error", error, automatic.allowed, automatic.budget, automatic.index)


def _nearest(candidate: Array, noise: Noise, others: Sequence[OtherAnswer]) -> _Nearest:
    """Choose PyTorch's answer for each element: of those it was beyond, the one it is least so."""
    opened = _where_is_no_number(candidate, noise, others)
    noise = _behind_decisions(candidate, noise, others)
    expected, whole = noise.expected, slice(None)
    best, moves = np.where(opened, candidate, expected), noise.moves(whole)
    # No limit lets an infinity pass.
    moves[np.isinf(distance(candidate, expected)).reshape(-1)] = 0.0
    noise = noise.at(best, moves)
    limits = noise.limits(whole).reshape(expected.shape)
    used = _share(distance(candidate, best), limits)
    beyond = used > 1
    causes: list[OpenCause] = ["rounding"] if opened.any() else []
    at = np.flatnonzero(beyond)
    wide = [o.array.reshape(-1)[at] for o in others if o.cause == "rounding"]
    for other in others:
        decided = other.cause == "rounding"
        own = _unmoved(other, at, wide, noise) if decided else noise.of(other.array, other.moved)
        answer, own_limits = own.expected, own.limits(whole).reshape(expected.shape)
        share = _share(distance(candidate, answer), own_limits)
        closer = beyond & (share < used)
        moved = distance(answer, expected) > limits + own_limits
        if decided:
            moved &= beyond & (np.isfinite(candidate) if other.held else True)
            closer &= moved
        else:
            moved |= closer & (share <= 1)
        if moved.any():
            opened |= moved
            causes.append(other.cause)
        used = np.where(closer, share, used)
        best[closer] = answer[closer]
        moves[closer.reshape(-1)] = own.moves(closer.reshape(-1))
    return _Nearest(noise.at(best, moves), opened, tuple(dict.fromkeys(causes)))


def _behind_decisions(candidate: Array, noise: Noise, others: Sequence[OtherAnswer]) -> Noise:
    """Return the noise with that of elements that runs of K times the rounding move further than K times.

    A ReLU or a clamp holds what is next to its limit where it is: no run may take it beyond, and a
    candidate that is K times as wrong as PyTorch may be there. Of a mean over rounded pixels each run
    decides another one, or none; the candidate's is a run that is not among them. On the way to an
    infinity there is every number.
    """
    off, moves = noise.beyond(candidate), noise.moves(slice(None))
    wide = [o.array.reshape(-1)[off] for o in others if o.cause == "rounding"]
    if not off.size or not wide:
        return noise
    beyond = _on_its_side(noise.expected.reshape(-1)[off], wide, noise.usual) - moves[off]
    moves[off] += _ONE_MORE * np.maximum(beyond, 0.0)
    answers = [noise.expected.reshape(-1)[off], *wide]
    moves[off[_is_on_the_way(candidate.reshape(-1)[off], answers)]] = math.inf
    return noise.at(noise.expected, moves)


def _where_is_no_number(candidate: Array, noise: Noise, others: Sequence[OtherAnswer]) -> Mask:
    """Return where PyTorch has no finite number, and rounding decides what there is.

    A quotient, or a logarithm, of what is left of 1: some of PyTorch's own runs are finite there, and the
    candidate is what they are, or further on their way. A quotient by 0 of what may be flushed to it is
    infinite in some of them and NaN in others. Where the candidate alone has no finite number, another of
    PyTorch's answers has to have none, and not because a run holds at 0 what is next to it: as small as
    that is, it has a logarithm.
    """
    c, t = candidate.astype(np.float64), noise.expected.astype(np.float64)
    opened = ~np.isfinite(t) & (distance(c, t) > 0)
    at = np.flatnonzero(opened)
    if at.size:
        wide = (each.array for each in others if each.cause == "rounding")
        answers = [each.reshape(-1)[at] for each in (noise.expected, *noise.runs, *wide)]
        flat = c.reshape(-1)[at]
        same = ~np.isfinite(flat) & np.any([distance(each, flat) == 0 for each in answers], axis=0)
        opened.reshape(-1)[at] = same | _is_on_the_way(flat, answers)
    return opened


def _is_on_the_way(candidate: Array, answers: Sequence[Array]) -> Mask:
    """Return where a number lies between an answer and one that is infinite.

    Where there are answers on both sides of a pole, any number does.
    """
    c, found = candidate.astype(np.float64), np.array([each.astype(np.float64) for each in answers])
    upward, downward = np.isposinf(found).any(axis=0), np.isneginf(found).any(axis=0)
    least = np.where(np.isfinite(found), found, np.inf).min(axis=0)
    most = np.where(np.isfinite(found), found, -np.inf).max(axis=0)
    both = (upward & ((least < 0) | downward)) | (downward & (most > 0))
    reached = both | (upward & (c >= least)) | (downward & (c <= most))
    return np.asarray(reached & np.isfinite(c) & np.isfinite(least))


def _unmoved(
    other: OtherAnswer, at: NDArray[np.int64], wide: Sequence[Array], noise: Noise
) -> Noise:
    """Return the noise of what a wide run has decided, about that answer with nothing moved if it is known.

    The run itself is as far from it as a candidate may be, and where few decided alike, these say little
    of how far that is. A decision for what is larger takes those that were moved up.
    """
    values, moves = other.array.reshape(-1)[at], noise.moves(slice(None))
    side, answer = _on_its_side(values, wide, noise.usual), other.array.copy()
    for still in other.moved:
        plain = still.reshape(-1)[at]
        apart = distance(plain, values)
        alike = apart <= _visible(values, noise.usual)
        answer.reshape(-1)[at] = np.where(alike, plain, values)
        side = np.maximum(side, np.where(alike, apart / WIDE, 0.0))
    moves[at] = np.maximum(moves[at], side)
    return noise.at(answer, moves)


def _on_its_side(values: Array, wide: Sequence[Array], usual: float) -> Floats:
    """Return how far rounding moves what a run has decided otherwise, by the runs that decided as it.

    A zero that was masked has no noise, and what stands there where it is not has. Runs of one decision
    are apart by no visible part, as one that is moved so far was not compared but left open: of the
    value, or of what is ``usual``, as behind a kink, where all of them are next to nothing.
    """
    most, visible = np.zeros(values.shape), _visible(values, usual)
    for run in wide:
        apart = distance(run, values)
        most = np.maximum(most, np.where(apart <= visible, apart, 0.0))
    return most / WIDE


def _visible(values: Array, usual: float) -> Floats:
    """Return what is a visible part of each value, or of what is usual; no number is next to infinity."""
    sizes = np.nan_to_num(np.abs(values.astype(np.float64)), nan=0.0, posinf=0.0)
    return np.asarray(VISIBLE * np.maximum(sizes, usual))


def _share(apart: Floats, limits: Floats) -> Floats:
    """Return what is used of each limit, and of one that is infinite nothing."""
    return np.divide(apart, limits, out=np.zeros_like(apart), where=np.isfinite(limits))


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
