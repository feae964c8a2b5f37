"""A tolerance for a file that computes in fewer bits, from what its checks have just measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import tolerance_data
from onnx_gate.manifest.nesting import name_in_file
from onnx_gate.report.model.diagnosis import Precision, Proposal
from onnx_gate.report.story.precision import kind_line
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.judge.criteria import top_agreement
from onnx_gate.verify.judge.judgement import is_floating

# What is left to the worst check where no two draws of equal sizes say more.
LEAST_DB, USUAL_DB = 1.0, 3.0
# What a file keeps that is merely in fewer bits, in dB; less is something wrong, and no tolerance is meant
# for it. Rounding a normal distribution to b bits over four standard deviations a side leaves 6.02 b - 7.3
# dB, 41 in int8; the noises of a hundred such layers add up in power, 10 log10 of 100, to 21. At 20 the
# noise is a tenth of the signal. Half precision, of 11 bits wherever the value is, keeps more than that,
# and four bits have 17 in the first layer: they are told apart from what is broken by half of it.
_FLOOR_DB, _FEW_BITS_FLOOR_DB = 20.0, 8.5
_FEW_BITS = ("int4", "uint4", "int2", "uint2")
# An output with more classes than this is no classifier's.
_CLASSES = 1 << 20
_CLASSIFIER = ("logit", "prob", "score", "class")
# With no row of n that disagrees, at most 3 / n of all rows do, at 95 % confidence.
_RULE_OF_THREE = 3.0
_LEAST_ROWS = 30


@dataclass(frozen=True)
class Measured:
    """How near one output was in one check.

    ``drawn``: the inputs are random, so that another case of the same ``sizes`` differs by the draw
    alone. ``agreeing`` of ``rows`` have their largest element where PyTorch has it; there are none
    where the output is no classifier's.
    """

    runtime: str
    case: str
    output: str
    sizes: Sizes
    drawn: bool
    cosine: float
    snr_db: float
    agreeing: int = 0
    rows: int = 0


def top1_of(name: str, candidate: Array, expected: Array) -> tuple[int, int]:
    """Return how many rows agree on their largest element, of how many.

    None of none where the output does not look like a classifier's: two axes, or a name that says
    so, and at least two classes.
    """
    named = any(word in name.lower() for word in _CLASSIFIER)
    if (
        not is_floating(expected.dtype)
        or not expected.size
        or not (expected.ndim == 2 or (named and expected.ndim > 2))
        or not 2 <= expected.shape[-1] <= _CLASSES
    ):
        return 0, 0
    rows = expected.size // expected.shape[-1]
    share, _ = top_agreement(candidate, expected, 1)
    return round(share * rows), rows


def note(reduced: Reduced) -> Finding:
    """Return the note (OG415) on a file that computes in fewer bits than its model."""
    return codes.OG415.finding(
        f"the file computes in {kind_line(_kind(reduced))}, the model in {reduced.model}"
    )


def precision_of(
    reduced: Reduced | None,
    measured: Iterable[Measured],
    spec: ModelSpec,
    graph: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Precision | None:
    """Return how a file computes in fewer bits, and what tolerance is for that.

    ``graph`` is what the file calls what PyTorch, or the manifest, calls ``outputs``.
    """
    if reduced is None:
        return None
    # Each result of half precision is rounded once more in one runtime than in another.
    least = USUAL_DB if reduced.is_half else LEAST_DB
    more = {
        "operators": dict(sorted(reduced.operators.items())),
        "proposals": tuple(_had(each, spec) for each in propose(measured, least, reduced.dtype)),
        "names": _names(spec, graph, outputs),
    }
    return _kind(reduced).model_copy(update=more)


def _had(proposal: Proposal, spec: ModelSpec) -> Proposal:
    """Return a proposal that says so where the manifest has it already."""
    given = (spec.outputs or {}).get(proposal.output) or spec.tolerance
    return proposal.model_copy(update={"had": tolerance_data(given) == proposal.tolerance})


def _names(spec: ModelSpec, graph: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Return what outputs have to be called in the manifest, as the file does; empty as they are."""
    said = {name_in_file(name, spec.inputs) for name in outputs}
    if spec.reference is not None or len(graph) != len(outputs) or said == set(graph):
        return {}
    return dict(zip(outputs, graph, strict=True))


def _kind(reduced: Reduced) -> Precision:
    return Precision(how=reduced.how, dtype=reduced.dtype, operators=dict(reduced.operators))


def propose(
    measured: Iterable[Measured], least: float = LEAST_DB, dtype: str = ""
) -> tuple[Proposal, ...]:
    """Return a tolerance for each output that has a signal and a noise, ``least`` dB from the worst.

    That of an output is empty that has lost more than ``dtype`` explains, and of one of which two draws
    are so far apart that nothing is left to ask.
    """
    by_output: dict[str, list[Measured]] = {}
    for each in measured:
        if math.isfinite(each.snr_db) and not math.isnan(each.cosine):
            by_output.setdefault(each.output, []).append(each)
    floor = _FEW_BITS_FLOOR_DB if dtype in _FEW_BITS else _FLOOR_DB
    return tuple(_of_output(name, checks, least, floor) for name, checks in by_output.items())


def _of_output(name: str, checks: Sequence[Measured], least: float, floor: float) -> Proposal:
    worst = min(checks, key=lambda each: each.snr_db)
    cosine = min(each.cosine for each in checks)
    apart = [abs(a.snr_db - b.snr_db) for a, b in _pairs(checks)]
    margin = max(least, max(apart)) if apart else USUAL_DB
    tolerance = {
        "cosine": _cosine(cosine, margin),
        "snr_db": math.floor(2 * (worst.snr_db - margin)) / 2,
    }
    rows = [each for each in checks if each.rows]
    agreement = min((each.agreeing / each.rows for each in rows), default=None)
    top1 = _top1(agreement, sum(each.rows for each in rows))
    return Proposal(
        output=name,
        checks=len(checks),
        case=worst.case,
        cosine=cosine,
        snr_db=worst.snr_db,
        top1=agreement,
        margin_db=margin,
        draws=len(apart),
        tolerance={}
        if worst.snr_db < floor or margin >= worst.snr_db  # noise as large as the signal would pass
        else tolerance | ({} if top1 is None else {"top1": top1}),
    )


def _pairs(checks: Sequence[Measured]) -> Iterable[tuple[Measured, Measured]]:
    """Return the checks that differ in the draw of their inputs alone."""
    alike: dict[tuple[str, tuple[tuple[str, int], ...]], list[Measured]] = {}
    for each in checks:
        if each.drawn:
            alike.setdefault((each.runtime, tuple(sorted(each.sizes.items()))), []).append(each)
    return (pair for group in alike.values() for pair in itertools.combinations(group, 2))


def _cosine(worst: float, margin: float) -> float:
    """Return the cosine with ``margin`` more noise, rounded down to two digits of what it lacks."""
    lacks = max(1.0 - worst, float(np.finfo(np.float32).eps)) * 10 ** (margin / 10)
    digits = 1 - math.floor(math.log10(lacks))
    unit = 10.0**-digits
    return round(max(1.0 - math.ceil(lacks / unit) * unit, -1.0), digits)


def _top1(agreement: float | None, rows: int) -> float | None:
    """Return the share of rows that may be asked to agree, ``None`` where that says nothing.

    A check of one row agrees or does not, so one row that disagrees anywhere leaves nothing to ask.
    """
    if agreement is None or agreement < 1.0 or rows < _LEAST_ROWS:
        return None
    return math.floor(100 * (1 - _RULE_OF_THREE / rows)) / 100
