"""The waivers of a manifest, put to checks that diverge: pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, Waiver
from onnx_gate.report.model import Check
from onnx_gate.text import number
from onnx_gate.verify.inputs.cases import matches


def waive(
    spec: ModelSpec, checks: Sequence[Check], today: datetime.date
) -> tuple[tuple[Check, ...], list[Finding]]:
    """Return the checks, those that diverge and are waived as such, and what to say of waivers."""
    used: set[int] = set()
    judged: list[Check] = []
    for check in checks:
        if check.verdict == "diverged" and not check.advice:
            for place, waiver in enumerate(spec.waivers):
                if matches(check.case, waiver.check) and waiver.until >= today:
                    used.add(place)
                    check = _under(waiver, check)
                    if check.verdict == "waived":
                        break
        judged.append(check)
    return tuple(judged), list(_waiver_notes(spec.waivers, used, checks, today))


def _under(waiver: Waiver, check: Check) -> Check:
    """Return a check that diverged as a waiver leaves it: forgiven, or too far off for that."""
    upto = "" if waiver.ceiling is None else f"an error of up to {number(waiver.ceiling)} "
    if not _forgives(waiver, check):
        reason = f"{check.reason}; a waiver forgives {upto.strip()} alone"
        return check.model_copy(update={"reason": reason})
    reason = f"{check.reason}; waived {'for ' if upto else ''}{upto}until {waiver.until}: "
    return check.model_copy(update={"verdict": "waived", "reason": reason + waiver.reason})


def _forgives(waiver: Waiver, check: Check) -> bool:
    return waiver.ceiling is None or waived_error(check) <= waiver.ceiling


def waived_error(check: Check) -> float:
    """Return the error that a waiver's ceiling is held against; infinite where there is none.

    That of the elements, whatever share of them, or part of all, has decided; of agreements and
    decibels what they are short of.
    """
    deviation, metrics = check.deviation, check.metrics
    if deviation is None or metrics is None or metrics.nonfinite:
        return math.inf
    steps = check.steps.errors if check.steps is not None else ()
    own = deviation.error
    if deviation.unit == "error" and metrics.scaled is not None:
        own = metrics.scaled
    return max((own, *steps))


def waives_every_case(spec: ModelSpec, today: datetime.date) -> bool:
    """Return whether a waiver holds that is not about certain cases (its glob is ``*``)."""
    return any(set(each.check) == {"*"} and each.until >= today for each in spec.waivers)


def waiver_of(spec: ModelSpec, check: Check, today: datetime.date) -> int | None:
    """Return the index of the waiver that forgives a check, ``None`` where none does."""
    for index, waiver in enumerate(spec.waivers):
        applies = matches(check.case, waiver.check) and waiver.until >= today
        if applies and _forgives(waiver, check):
            return index
    return None


def _waiver_notes(
    waivers: Iterable[Waiver], used: set[int], checks: Sequence[Check], today: datetime.date
) -> Iterable[Finding]:
    for place, waiver in enumerate(waivers):
        if waiver.until < today:
            yield codes.OG601.finding(
                f"the waiver for {waiver.check} ended on {waiver.until} ({waiver.reason}): "
                "it forgives nothing any more"
            )
        elif place not in used and checks:
            yield codes.OG602.finding(
                f"the waiver for {waiver.check} was not needed ({waiver.reason}): remove it"
            )
