"""Integer and boolean outputs: equal, or one of PyTorch's answers where it has several.

An index is judged by what it points at. ``argmax``, ``argmin``, ``max``, ``min`` and a stable sort
promise the first of equals, so where the equality is exact (it stays when rounding is moved) the
index has to be the same one. What is computed of an index, as the rows and columns of peaks are, is
judged by the places that it may come from: one of them has to hold an equal value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.numerics.compare import compare
from onnx_gate.report.model import Deviation, OpenCause
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.criteria import fixed_criteria
from onnx_gate.verify.judge.judgement import (
    Judgement,
    Rules,
    by_criteria,
    describe,
    metrics_of,
    worst_of,
)
from onnx_gate.verify.judge.noise import GROUPS, Floats, Mask, Noise, Terms
from onnx_gate.verify.judge.systematic import Lean, lean_of_choices
from onnx_gate.verify.reference.answers import Derived, IndexSource, Reference, Searched

UNEQUAL = "unequal elements"
# The answers of a single decision.
_DECISION = 2
# Of so many elements what runs show once is counted.
_LOOKED_AT = 2**16
# Places that are looked at in a search for those that a number may come from.
_MOST = 1 << 26


def judge_integers(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> Judgement:
    """Judge one output of whole numbers or booleans, of PyTorch's shape and dtype."""
    comparison = compare(candidate, expected, threads=rules.threads)
    described = describe(rules.tolerance)
    if not comparison.exceeding:
        return Judgement(
            True, 0.0, "", metrics_of(comparison), tolerance={"equal": True}, compared=expected.size
        )
    worst = worst_of(candidate, expected, comparison.exceeding_index)
    tolerance = rules.tolerance
    if not rules.equality(expected.dtype):
        criteria = list(
            fixed_criteria(candidate, expected, comparison, tolerance, rules.metric, rules.threads)
        )
        judged = by_criteria(candidate, expected, comparison, criteria, None, rules, described)
        return replace(judged, compared=expected.size)
    if tolerance.indices == "values" and not rules.settled:
        opened, causes, lean = _open_integers(candidate, expected, rules, reference)
        if not np.any((candidate != expected) & ~opened):
            count = int(np.count_nonzero(opened))
            return Judgement(
                True,
                0.0,
                f"{comparison.exceeding} of {comparison.elements} elements differ where "
                f"{rules.against}'s answer is open: {', '.join(causes)}",
                metrics_of(comparison),
                worst,
                Deviation(measure=UNEQUAL, value=0, allowed=0),
                {"indices": "values"},
                lean=lean,
                compared=expected.size - count,
                open=count,
                causes=causes,
                opened=opened,
            )
    return Judgement(
        False,
        math.inf,
        f"{comparison.exceeding} of {comparison.elements} elements differ from {rules.against}'s",
        metrics_of(comparison),
        worst,
        Deviation(measure=UNEQUAL, value=comparison.exceeding, allowed=0),
        {"equal": True},
        compared=expected.size,
    )


def _open_integers(
    candidate: Array, expected: Array, rules: Rules, reference: Reference
) -> tuple[Mask, tuple[OpenCause, ...], Lean]:
    """Return the elements that differ and are one of PyTorch's answers, why, and what choices lean to."""
    differs = candidate != expected
    opened = np.zeros_like(differs)
    causes: list[OpenCause] = []

    def take(cause: OpenCause, part: Mask) -> None:
        part = part & differs
        if part.any():
            causes.append(cause)
            np.logical_or(opened, part, out=opened)

    searched, lean = reference.searched(), Lean()
    if searched is not None:
        equal = point_at_equals(candidate, expected, searched, rules.tolerance.auto or DEFAULT_AUTO)
        if equal is not None:
            take("order of equals", equal[0])
            lean = equal[1]
    answers = [expected]
    for other in reference.variants() if np.any(differs & ~opened) else ():
        if other.array.shape == expected.shape:
            answers.append(other.array)
            take(other.cause, other.array == candidate)
    if searched is not None and searched.own.promises_first:
        # What it chooses among may be open, as what an unstable sort leaves out is; its choice is not.
        return opened, tuple(dict.fromkeys(causes)), lean
    if np.any(differs & ~opened):
        for run in reference.rounding(GROUPS[-1]):
            answers.append(run)
            take("rounding", run == candidate)
        # Of a single number it is no array.
        left = np.asarray(differs & ~opened)
        left[left] = _is_among(
            candidate[left],
            np.stack([each[left] for each in answers]),
            rules.tolerance.auto or DEFAULT_AUTO,
            _chance(answers),
        )
        take("rounding", left)
    return opened, tuple(dict.fromkeys(causes)), lean


def _is_among(candidate: Array, answers: Array, times: float, chance: float) -> Mask:
    """Return the elements that may be a further one of the ``answers``, [runs, elements].

    They are no further from the first than ``times`` the others are, as any number is judged, and there
    are more answers than were seen. What was never seen of an element is told by what was seen once
    (Chao, Scand. J. Stat. 11, 1984): f (f - 1) / 2 are missing at most, f being the values that came a
    single time. A decision between two is known from either; an index into many near equals is another
    one in each run. What is made of several decisions has all of its values seen often, but for few of
    many elements: as many in all as ``chance`` has, and three deviations of a Poisson variable.
    """
    first = answers[0].astype(np.float64)
    near = np.abs(candidate - first) <= times * np.abs(answers - first).max(axis=0)
    once, values = _counted(answers)
    granted = near & (once > 1)
    rest = near & ~granted & (values > _DECISION)
    if np.count_nonzero(rest) <= chance + 3 * math.sqrt(chance):
        granted |= rest
    return np.asarray(granted, np.bool_)


def _chance(answers: Sequence[Array]) -> float:
    """Return of how many elements a further run would show a value that none of the ``answers`` has.

    Of those that are made of several decisions, by what came once (Good, Biometrika 40, 1953): one more of
    n runs shows something new in f / n of the cases.
    """
    varies = np.zeros(answers[0].shape, np.bool_)
    for each in answers[1:]:
        varies |= each != answers[0]
    at = np.flatnonzero(varies)
    some = at[:: len(at) // _LOOKED_AT + 1]
    if not some.size:
        return 0.0
    once, values = _counted(np.stack([each.reshape(-1)[some] for each in answers]))
    return float(once[values > _DECISION].sum()) / len(answers) * len(at) / len(some)


def _counted(answers: Array) -> tuple[Array, Array]:
    """Return how many values of each element came once, and how many there are."""
    ordered = np.sort(answers, axis=0)
    changes = np.ones((len(ordered) + 1, ordered.shape[1]), np.bool_)
    changes[1:-1] = ordered[1:] != ordered[:-1]
    return (changes[1:] & changes[:-1]).sum(axis=0), changes[1:].sum(axis=0)


def point_at_equals(
    candidate: Array, expected: Array, searched: Searched, factor: float
) -> tuple[Mask, Lean] | None:
    """Return where ``candidate``'s indices point at values that are PyTorch's but for rounding.

    The two values that were exchanged may each be off by the noise of their own; and what all of them
    lean to. ``None`` where nothing can be told: the output is no index, or an index is out of range.
    """
    own = searched.own
    if candidate.dtype.kind not in "iu" or own.values.dtype.kind not in "iubfV":
        return None
    if own.derived is not None:
        come = _come_of_equals(candidate, expected, searched, own.derived, factor)
        return None if come is None else (come, Lean())
    picked_c, picked_t = own.gather(candidate), own.gather(expected)
    if picked_c is None or picked_t is None:
        return None
    c, t = picked_c.astype(np.float64), picked_t.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # Whole numbers as they are: as floats those next to each other may be equal.
        close = (picked_c == picked_t) | (np.isnan(c) & np.isnan(t))
        lean = Lean()
        if own.values.dtype.kind not in "iub" and not close.all():
            noise = _noise(searched, factor)
            shape, whole = own.values.shape, slice(None)
            limits, usual = noise.limits(whole).reshape(shape), noise.deviations().reshape(shape)
            close |= np.abs(c - t) <= _of_both(own, candidate, expected, limits)
            squares = _of_both(own, candidate, expected, np.square(usual))
            found = (own.gather(each.chosen) for each in searched.moved if each.chosen is not None)
            runs = [each.astype(np.float64) - t for each in found if each is not None]
            lean = lean_of_choices(c - t, runs, np.sqrt(squares))
    if own.promises_first:
        close &= ~_exactly_equal(candidate, expected, [own, *searched.moved])
    return np.asarray(close.reshape(expected.shape), np.bool_), lean


def _of_both(own: IndexSource, candidate: Array, expected: Array, each: Floats) -> Floats:
    """Return the sums of what the two entries have that were exchanged."""
    both = [own.gather(candidate, each), own.gather(expected, each)]
    return np.asarray(sum(found for found in both if found is not None), np.float64)


def _noise(searched: Searched, factor: float) -> Noise:
    """Return the noise of each of the values that were searched."""
    values = searched.own.values
    return Noise(values, Terms.of(factor, values.dtype), searched).all()


def _limits(searched: Searched, factor: float) -> Floats:
    """Return by how much each of the values that were searched may be off."""
    values = searched.own.values
    if values.dtype.kind in "iub":
        return np.zeros(values.shape)
    return _noise(searched, factor).limits(slice(None)).reshape(values.shape)


def _come_of_equals(
    candidate: Array, expected: Array, searched: Searched, derived: Derived, factor: float
) -> Mask | None:
    """Return where a number is that of a place whose value is the chosen one's but for rounding."""
    own = searched.own
    close = (candidate == expected).reshape(-1)
    left = np.flatnonzero(~close)
    exact, limits = own.lanes(own.values), own.lanes(_limits(searched, factor))
    values = exact.astype(np.float64)
    whole = own.values.dtype.kind in "iub"
    if left.size * values.shape[1] > _MOST:
        return None
    lanes = own.lane_of()[left]
    places, numbers = derived.places.reshape(-1)[left], candidate.reshape(-1)[left]
    for at, lane, place, number in zip(left, lanes, places, numbers, strict=True):
        with np.errstate(invalid="ignore"):
            apart = np.abs(values[lane] - values[lane, place])
        equal = apart <= limits[lane] + limits[lane, place]
        equal &= (exact[lane] == exact[lane, place]) | (not whole)
        close[at] = bool((equal & (derived.of == number)).any())
    return np.asarray(close.reshape(expected.shape), np.bool_)


def _exactly_equal(candidate: Array, expected: Array, sources: Sequence[IndexSource]) -> Mask:
    """Return where both indices point at the same value in every one of PyTorch's runs."""
    equal = np.ones(expected.shape, np.bool_)
    for source in sources:
        c, t = source.gather(candidate), source.gather(expected)
        if c is None or t is None:
            return np.zeros(expected.shape, np.bool_)
        equal &= (c == t).reshape(expected.shape)
    return equal
