"""Why a fault survives every change of the manifest that was tried; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from onnx_gate.audit.separate import (
    Scope,
    criteria_of,
    criterion_of,
    least_share,
    reach,
    share_left,
    sharpened,
    sharpest,
    used_share,
)
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import tolerance_data
from onnx_gate.report.model import Check
from onnx_gate.report.model.audit import Unseen
from onnx_gate.report.story.summary import within_rounding
from onnx_gate.verify.waive import waived_error

Key = tuple[str, str, str]


def unseen(
    scopes: Sequence[Scope], original: Sequence[Check], faulty: Sequence[Check]
) -> Unseen | None:
    """Return why the checks of a fault pass as those of the original do; ``None`` where none says."""
    opened = _opened(original, faulty)
    if opened is not None:
        return opened
    nearest = max(_nearest(scopes, original, faulty), key=lambda n: n[0], default=None)
    if nearest is not None:
        return nearest[1]
    floor = [c for c in faulty if within_rounding(c) and c.budget]
    if floor:
        return _at(max(floor, key=lambda c: c.budget or 0.0), "floor")
    return None


def forgiven(spec: ModelSpec, number: int, checks: Iterable[Check]) -> Unseen:
    """Return that a waiver forgives the checks of a fault."""
    worst = max(checks, key=waived_error)
    return _at(worst, "waiver").model_copy(update={"subject": spec.waivers[number].check})


def outside(spec: ModelSpec, check: Check) -> Unseen:
    """Return that a fault shows where a mask of the manifest's has an output not judged."""
    return _at(check, "where").model_copy(update={"subject": spec.where.get(check.output, "")})


def _at(check: Check, why: str) -> Unseen:
    return Unseen.model_validate(
        {"why": why, "runtime": check.runtime, "case": check.case, "output": check.output}
    )


def _opened(original: Sequence[Check], faulty: Sequence[Check]) -> Unseen | None:
    """Return that a fault moves what PyTorch leaves open alone, where it does."""
    before = {_key(check): check for check in original}
    more = [c for c in faulty if c.open > (before[_key(c)].open if _key(c) in before else 0)]
    if not more or any(criterion_of(c) and c.budget for c in faulty):
        return None
    worst = max(more, key=lambda c: c.open)
    return _at(worst, "open").model_copy(update={"subject": ", ".join(worst.causes)})


def _nearest(
    scopes: Sequence[Scope], original: Sequence[Check], faulty: Sequence[Check]
) -> Iterator[tuple[float, Unseen]]:
    """Yield how near a fault is to being told from the original, by tolerance and criterion.

    Where a tolerance that could be proposed should tell the two apart, it is the sharpest of these, and
    nothing is known of it.
    """
    for scope in scopes:
        own, checks = scope.of(original), scope.of(faulty)
        used = used_share(own)
        for criterion in criteria_of(checks):
            share = reach(criterion, checks)
            if not share:
                continue
            check = next(c for c in checks if criterion_of(c) == criterion and c.budget == share)
            least = least_share(scope.tolerance, criterion, own)
            known: dict[str, object] = {"budget": share, "original": used}
            tolerance = scope.tolerance
            if least and share > least:
                tolerance = sharpest(scope.tolerance, criterion, least)
                known = {}
            elif share > used:
                tolerance = sharpened(scope.tolerance, criterion, used, share)
                left = share_left(scope.tolerance, tolerance, criterion)
                known = {"budget": share / left, "original": used / left}
            known |= {"tolerance": tolerance_data(tolerance), "key": scope.key}
            at = _at(check, "margin" if share > used else "original")
            yield share / used if used else math.inf, at.model_copy(update=known)


def _key(check: Check) -> Key:
    return check.runtime, check.case, check.output
