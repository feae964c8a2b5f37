"""From checks and findings to the verdict on a model: pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence

from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec, Waiver
from onnx_gate.report.model import Check, Finding, Verdict
from onnx_gate.verify.inputs.cases import matches
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label

_COMPARED = ("pass", "diverged", "waived")


def conclude(
    spec: ModelSpec,
    checks: Sequence[Check],
    findings: Sequence[Finding],
    example: Sizes,
    today: datetime.date,
) -> tuple[Verdict, tuple[Check, ...], tuple[Finding, ...]]:
    """Apply the waivers and return the verdict, the checks and all findings, each once.

    ``error`` where nothing was compared, ``diverged`` where a check diverged or a finding is an
    error, else ``pass``.
    """
    judged, notes = _waive(spec, checks, today)
    every = list(dict.fromkeys([*findings, *_baked_size(judged, example, findings), *notes]))
    if not any(check.verdict in _COMPARED for check in judged):
        return "error", judged, tuple(every)
    untried = _untested_dimension(spec, judged, findings)
    if untried:
        every.append(untried)
        return "error", judged, tuple(every)
    failed = any(check.verdict == "diverged" and not check.advice for check in judged)
    failed = failed or any(finding.severity == "error" for finding in every)
    return ("diverged" if failed else "pass"), judged, tuple(every)


def _untested_dimension(
    spec: ModelSpec, checks: Sequence[Check], findings: Sequence[Finding]
) -> Finding | None:
    """Return which dynamic dimension was compared at none of the sizes that it is tested at."""
    sizes: dict[str, set[int]] = {}
    for check in checks:
        label = next((part for part in check.case.split("/") if "=" in part), None)
        if check.verdict in _COMPARED and not check.advice:
            if label is None:
                return None
            for pair in label.split(","):
                name, _, size = pair.partition("=")
                sizes.setdefault(name, set()).add(int(size))
    tried = {label for check in checks for label in check.case.split("/") if "=" in label}
    for name, tested in spec.dims.items():
        wanted = {s for s in tested if any(f"{name}={s}" in t.split(",") for t in tried)}
        if wanted and not wanted & sizes.get(name, set()):
            listed = ", ".join(map(str, sorted(wanted)))
            fitting = next((f.data for f in findings if f.data.get("dimension") == name), None)
            known = f", such as dims: {{{name}: {fitting['sizes']}}}" if fitting else ""
            return codes.OG402.finding(
                f"PyTorch refuses every size of {name!r} that was tested ({listed}), so it is "
                f"verified at none: name sizes under dims that the model is made for{known}",
            )
    return None


def _waive(
    spec: ModelSpec, checks: Sequence[Check], today: datetime.date
) -> tuple[tuple[Check, ...], list[Finding]]:
    used: set[int] = set()
    judged: list[Check] = []
    for check in checks:
        if check.verdict == "diverged" and not check.advice:
            for number, waiver in enumerate(spec.waivers):
                if matches(check.case, waiver.check) and waiver.until >= today:
                    used.add(number)
                    if _forgives(waiver, check):
                        check = check.model_copy(
                            update={
                                "verdict": "waived",
                                "reason": f"{check.reason}; waived until {waiver.until}: "
                                f"{waiver.reason}",
                            }
                        )
                        break
        judged.append(check)
    return tuple(judged), list(_waiver_notes(spec.waivers, used, checks, today))


def _forgives(waiver: Waiver, check: Check) -> bool:
    if waiver.ceiling is None:
        return True
    return (
        check.metrics is not None
        and check.metrics.nonfinite == 0
        and not math.isnan(check.metrics.max_abs)
        and check.metrics.max_abs <= waiver.ceiling
    )


def _waiver_notes(
    waivers: Iterable[Waiver], used: set[int], checks: Sequence[Check], today: datetime.date
) -> Iterable[Finding]:
    for number, waiver in enumerate(waivers):
        if waiver.until < today:
            yield codes.OG601.finding(
                f"the waiver for {waiver.check} ended on {waiver.until} ({waiver.reason}): "
                "it forgives nothing any more",
            )
        elif number not in used and checks:
            yield codes.OG602.finding(
                f"the waiver for {waiver.check} was not needed ({waiver.reason}): remove it",
            )


def _baked_size(
    checks: Sequence[Check], example: Sizes, findings: Sequence[Finding]
) -> Iterable[Finding]:
    """Return whether a size is baked in where the graph agrees at the example's sizes and only there.

    At the line whose condition torch.export took for granted, where ``findings`` has one.
    """
    if not example:
        return
    here = sizes_label(example)
    verdicts: dict[str, set[str]] = {}
    for check in checks:
        if not check.advice and check.verdict != "refused":
            for part in check.case.split("/")[1:]:
                if "=" in part:
                    verdicts.setdefault(part, set()).add(check.verdict)
    places = [place for place, found in verdicts.items() if found == {"diverged"}]
    said = any(codes.OG102.among(findings))
    if verdicts.get(here) == {"pass"} and places and not said:
        cause = next((f for f in codes.OG116.among(findings) if f.file), None)
        where = f" by {cause.file}:{cause.line}" if cause is not None else ""
        yield codes.OG102.finding(
            f"the graph agrees with PyTorch in every case at the sizes it was exported with "
            f"({here}) and in none at {', '.join(places[:4])}: a size is baked into it{where}",
            file=cause.file if cause is not None else None,
            line=cause.line if cause is not None else None,
        )
