"""Integer and boolean outputs: equal, or one of PyTorch's answers where it has several."""

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
from onnx_gate.verify.judge.indices import point_at_equals
from onnx_gate.verify.judge.judgement import (
    Judgement,
    Rules,
    by_criteria,
    describe,
    metrics_of,
    worst_of,
)
from onnx_gate.verify.judge.noise import GROUPS, Mask
from onnx_gate.verify.judge.systematic import Lean
from onnx_gate.verify.reference.answers import Reference

UNEQUAL = "unequal elements"
# The answers of a single decision.
_DECISION = 2
# Of so many elements what runs show once is counted.
_LOOKED_AT = 2**16


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
    if tolerance.indices == "values":
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
