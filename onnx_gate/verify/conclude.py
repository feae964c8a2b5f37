"""From checks and findings to the verdict on a model: pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, Waiver
from onnx_gate.report.model import Check, ModelError, Verdict
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.report.story.coverage import COMPARED
from onnx_gate.text import listed, number
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.inputs.cases import matches
from onnx_gate.verify.inspect.weighed import weighed
from onnx_gate.verify.judge.noise import VISIBLE


@dataclass(frozen=True)
class Tried:
    """What was tried beside the checks: ``outputs`` by name, ``empty`` the suites without a case.

    ``selected``: the user asked for some of
    the cases only, so what was left out is no omission.
    """

    outputs: Mapping[str, Experience]
    empty: tuple[str, ...] = ()
    selected: bool = False


def conclude(
    spec: ModelSpec,
    checks: Sequence[Check],
    findings: Sequence[Finding],
    tried: Tried,
    today: datetime.date,
) -> tuple[Verdict, tuple[Check, ...], tuple[Finding, ...]]:
    """Apply the waivers and return the verdict, the checks and all findings, each once.

    ``diverged`` where a check diverged or a finding is an error, ``error`` where something that
    had to be compared was not (the findings of OG402 and OG307 say what), else ``pass``.
    """
    judged, notes = waive(spec, _answered_where_refused(checks), today)
    findings = [
        weighed(each, judged) if each.code == codes.OG116.code else each for each in findings
    ]
    every = list(dict.fromkeys([*findings, *notes]))
    failed = any(check.verdict == "diverged" and not check.advice for check in judged)
    failed = failed or any(
        finding.severity == "error" and finding.code != codes.OG307.code for finding in every
    )
    unverified = list(_not_compared(spec, judged, every, tried))
    every += [*unverified, *_remarks(spec, _own(judged), tried)]
    if not any(check.verdict in COMPARED for check in judged):
        return "error", judged, tuple(every)
    if failed:
        return "diverged", judged, tuple(every)
    if unverified or any(codes.OG307.among(every)):
        return "error", judged, tuple(every)
    return "pass", judged, tuple(every)


def _own(checks: Sequence[Check]) -> list[Check]:
    """Return the checks of the model's own outputs; those of values inside say nothing of these."""
    return [check for check in checks if not check.block]


def _not_compared(
    spec: ModelSpec, checks: Sequence[Check], findings: Sequence[Finding], tried: Tried
) -> Iterator[Finding]:
    """Yield what had to be compared and was not: dimensions, suites, sizes, outputs, and judges."""
    counting = [check for check in checks if not check.advice]
    compared = [check for check in counting if check.verdict in COMPARED]
    yield from _untested_dimensions(spec, counting, compared, findings)
    if not tried.selected:
        yield from _untested_suites(spec, counting, tried)
        yield from _untested_steps(spec, compared)
    yield from _uncompared_outputs(spec, _own(compared))
    for name, experience in tried.outputs.items():
        if experience.accepted and not experience.refused:
            yield codes.OG402.finding(
                f"the tolerance of {name} takes the answer of another case for the right one "
                f"({experience.accepted}), so it cannot fail: name one that can see the difference"
            )


def _untested_dimensions(
    spec: ModelSpec,
    counting: Sequence[Check],
    compared: Sequence[Check],
    findings: Sequence[Finding],
) -> Iterator[Finding]:
    """Yield dynamic dimensions compared at none of their sizes, and declared sizes never compared."""
    for name, tested in spec.dims.items():
        tried = {c.sizes[name] for c in counting if name in c.sizes} & set(tested)
        missing = tried - {c.sizes[name] for c in compared if name in c.sizes}
        if not missing:
            continue
        listed = ", ".join(map(str, sorted(missing)))
        if missing == tried:
            fitting = next((f.data for f in findings if f.data.get("dimension") == name), None)
            known = f", such as dims: {{{name}: {fitting['sizes']}}}" if fitting else ""
            yield codes.OG402.finding(
                f"{spec.against} refuses every size of {name!r} that was tested ({listed}), so it is "
                f"verified at none: name sizes under dims that the model is made for{known}",
            )
        elif name in spec.named_dims:
            yield codes.OG402.finding(
                f"the manifest declares {name}={listed} under dims, and no case of that size was "
                "compared: both sides refuse it. Name sizes that the model is made for",
            )


def _untested_steps(spec: ModelSpec, compared: Sequence[Check]) -> Iterator[Finding]:
    """Yield a word where no case has come as far as the manifest's ``steps``.

    What diverges may have ended the way of its case, and is said already.
    """
    if spec.steps is None or any(check.verdict == "diverged" for check in compared):
        return
    reached = max((len(check.steps.errors) for check in compared if check.steps), default=0)
    if not reached:
        yield codes.OG402.finding(
            "the manifest declares steps and none was taken: they begin at the cases of random, files "
            "and generator suites, not at edges. Name such a suite"
        )
    elif reached < spec.steps.count:
        yield codes.OG402.finding(
            f"the manifest declares {spec.steps.count} steps and no case came further than {reached}: "
            f"{spec.against} refuses the next one. Declare fewer, or sizes that leave room for them"
        )


def undecided(spec: ModelSpec, decisions: Decisions | None) -> Iterator[Finding]:
    """Yield a word where less was shown of decisions, ``None`` were watched, than the manifest asks for."""
    asked = spec.coverage
    if asked is None or (decisions is not None and decisions.share >= asked.decisions):
        return
    if decisions is None:
        yield codes.OG402.finding(
            "the manifest asks for coverage of decisions, and the model's operators cannot be watched"
        )
        return
    yield codes.OG402.finding(
        f"{decisions.seen} of {decisions.of} decisions were seen both ways, {decisions.compared} more "
        f"were compared at their operators, and the manifest asks for {asked.decisions:.0%}: add inputs "
        "that show the others, which the page lists with their lines, or declare a range in which "
        "they lie"
    )


def _untested_suites(spec: ModelSpec, counting: Sequence[Check], tried: Tried) -> Iterator[Finding]:
    """Yield the suites that the manifest names and of which no case was compared.

    One whose outputs are NaN throughout was: NaN has to meet NaN.
    """
    for name in (*spec.suites, *spec.given):
        own = [check for check in counting if check.suite == name]
        if name in tried.empty:
            why = "it made no case, or none that fits the inputs"
        elif own and all(check.verdict == "refused" for check in own):
            why = f"both sides refuse all of its {len({c.case for c in own})} cases"
        else:
            continue
        yield codes.OG402.finding(f"nothing was compared in the suite {name}: {why}")


def _uncompared_outputs(spec: ModelSpec, compared: Sequence[Check]) -> Iterator[Finding]:
    """Yield the outputs of which no element was compared in a case that is an ordinary one.

    One in which every input is 1 is none, and neither is the only one of many cases, or the only
    element of many, that is finite.
    """
    by_output: dict[str, list[Check]] = {}
    for check in compared:
        if check.output != "*":
            by_output.setdefault(check.output, []).append(check)
    for name, checks in by_output.items():
        if any(check.verdict == "diverged" for check in checks):
            continue
        ordinary = [c for c in checks if c.edge != "ones" or c.suite in spec.suites]
        held = [c for c in ordinary if c.compared]
        if held and (len({c.case for c in ordinary}) == 1 or len({c.case for c in held}) > 1):
            continue
        if any(check.open for check in checks):
            causes = ", ".join(dict.fromkeys(c for check in checks for c in check.causes))
            why = f"{spec.against} leaves all of it open ({causes})"
        elif all(check.outside for check in checks):
            why = "the input that says where it is judged was 0 everywhere, in every case"
        elif all(check.metrics is not None and not check.metrics.elements for check in checks):
            why = "it was empty in every case"
        elif any(check.compared for check in checks):
            few = max(checks, key=lambda c: c.compared)
            why = f"it was finite in {few.case} alone ({few.compared} elements)"
        else:
            why = "it was NaN or infinite throughout, on both sides, in every case"
        yield codes.OG402.finding(
            f"no element of the output {name} was compared: {why}. Give the inputs ranges or sizes, "
            "or a generator, that make it mean something"
        )


def _remarks(spec: ModelSpec, checks: Sequence[Check], tried: Tried) -> Iterator[Finding]:
    """Yield what a reader has to know of the checks, once for each output and not for each case."""
    counting = [check for check in checks if not check.advice]
    by_output: dict[str, list[Check]] = {}
    for check in counting:
        by_output.setdefault(check.output, []).append(check)
    for name, own in by_output.items():
        empty = [c for c in own if not c.edge and _nonfinite(c)]
        if empty:
            yield codes.OG418.finding(
                f"{spec.against} itself answers NaN or infinity in {sum(map(_nonfinite, empty))} of "
                f"{sum(c.metrics.elements for c in empty if c.metrics)} elements of {name}, on inputs "
                f"that are at no edge ({_cases(empty)}): nothing is compared there",
                data={"output": name, "nonfinite": sum(map(_nonfinite, empty))},
            )
        masked = [check for check in own if check.outside and check.verdict == "pass"]
        if masked:
            outside = sum(check.outside for check in masked)
            of = outside + sum(check.open + check.compared for check in masked)
            yield codes.OG411.finding(
                f"{outside} of {of} elements of {name} were not compared: the manifest has it judged "
                f"by a mask, which is 0 there ({_cases(masked)})",
                data={"output": name, "outside": outside, "of": of},
            )
        opened = [check for check in own if check.open and check.verdict == "pass"]
        if opened:
            causes = ", ".join(dict.fromkeys(c for check in opened for c in check.causes))
            elements = sum(check.open for check in opened)
            of = sum(check.open + check.compared for check in own)
            yield codes.OG404.finding(
                f"{elements} of {of} elements of {name} are open: {causes}; {spec.against} has more than "
                f"one answer there, and each is one of them ({_cases(opened)})",
                data={"output": name, "open": elements, "of": of},
            )
        shaky = [c for c in own if "rounding" in c.causes and c.open > c.compared]
        if shaky:
            yield codes.OG401.finding(
                f"{name} is ill-conditioned in {_cases(shaky)}: rounding moves most of "
                f"{spec.against}'s own answer by a visible part of it, so faults of that size cannot "
                "be seen there",
            )
        yield from _other_tokens(spec, name, own)
        yield from _blunt(name, own)
    for name, experience in tried.outputs.items():
        if experience.is_constant and name in by_output:
            yield codes.OG408.finding(
                f"the output {name} was {experience.low:g} in every element of every case: whatever "
                "it should depend on was not tried",
                data={"output": name},
            )
    refused = [check for check in counting if check.verdict == "refused"]
    cases = {check.case for check in counting}
    if refused and len(refused) < len(counting):
        never = _never_compared_sizes(counting)
        at = f"; at {', '.join(never)} nothing was compared" if never else ""
        first = next((c for c in refused if _at(c, never)), refused[0])
        at += f". {first.case}: {first.reason}"
        yield codes.OG409.finding(
            f"{len({c.case for c in refused})} of {len(cases)} cases compare nothing, because both "
            f"sides refuse them ({_cases(refused)}){at}",
        )


def _blunt(name: str, own: Sequence[Check]) -> Iterator[Finding]:
    """Yield a word on an output of which an error of one per cent would have passed somewhere.

    Of one that diverges there is nothing to say: what is wrong with it has been seen.
    """
    if any(check.verdict == "diverged" for check in own):
        return
    for check in own:
        found = check.resolution
        if found is None or found.worst <= VISIBLE:
            continue
        known = {"an element": found.element, "a row": found.row, "a channel": found.channel}
        off = [
            f"{what} by {f'{size:.0%}' if math.isfinite(size) else '100%'}"
            for what, size in known.items()
            if size is not None and size > VISIBLE
        ]
        passed = [f"off in {' or '.join(off)}", *(f"with {each}" for each in found.unseen)]
        yield codes.OG407.finding(
            f"the checks of {name} cannot see an error of 1% wherever it is: it could have been "
            f"{', or '.join(passed)} and passed",
            data={"output": name, "resolution": found.worst},
        )
        return


def _nonfinite(check: Check) -> int:
    """Return in how many elements both sides are NaN, or the same infinity."""
    if check.metrics is None or check.verdict != "pass" or check.steps is not None:
        return 0
    return max(check.metrics.elements - check.compared - check.open, 0)


def _other_tokens(spec: ModelSpec, name: str, checks: Sequence[Check]) -> Iterator[Finding]:
    """Yield a word on tokens that differ although what they are chosen from is within tolerance."""
    every = [(c, c.steps.tokens) for c in checks if c.steps is not None and c.steps.tokens]
    other = [(c, t) for c, t in every if t.differ_at is not None and c.verdict == "pass"]
    if other:
        same, of = sum(t.same for _, t in every), sum(t.of for _, t in every)
        check, tokens = other[0]
        yield codes.OG413.finding(
            f"{of - same} of {of} tokens chosen from {name} are not {spec.against}'s, first at step "
            f"{tokens.differ_at} of {check.case}, although {name} is within tolerance. From there on "
            f"both sides were given {spec.against}'s",
            data={"output": name, "same": same, "of": of},
        )


def _answered_where_refused(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Let a file count that answers at a size at which PyTorch refuses every case.

    Elsewhere it need not refuse the inputs that PyTorch does.
    """
    at: dict[str, list[Check]] = {}
    for check in checks:
        for name, size in check.sizes.items():
            at.setdefault(f"{name}={size}", []).append(check)
    refused = [
        label for label, own in at.items() if all("pytorch" in check.refused for check in own)
    ]
    return tuple(
        check.model_copy(update={"advice": False})
        if check.refused == ("pytorch",) and check.verdict == "diverged" and _at(check, refused)
        else check
        for check in checks
    )


def _at(check: Check, sizes: Sequence[str]) -> bool:
    return any(f"{name}={size}" in sizes for name, size in check.sizes.items())


def _never_compared_sizes(counting: Sequence[Check]) -> list[str]:
    tried: dict[str, bool] = {}
    for check in counting:
        for name, size in check.sizes.items():
            label = f"{name}={size}"
            tried[label] = tried.get(label, False) or check.verdict in COMPARED
    return [label for label, was in tried.items() if not was]


def _cases(checks: Sequence[Check]) -> str:
    return listed(dict.fromkeys(check.case for check in checks), 1)


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
                "it forgives nothing any more",
            )
        elif place not in used and checks:
            yield codes.OG602.finding(
                f"the waiver for {waiver.check} was not needed ({waiver.reason}): remove it",
            )


def unverified(checks: tuple[Check, ...], findings: tuple[Finding, ...]) -> ModelError:
    """Return why a model has no verdict although it ran: a runtime that failed goes first."""
    failed = next(codes.OG307.among(findings), None)
    if failed is not None:
        kind, code = failed.data["kind"], failed.data["code"]
        said = {"message": failed.data["message"], "known": failed.data.get("known")}
        return ModelError.model_validate({"kind": kind, "code": code, **said})
    messages = [finding.message for finding in codes.OG402.among(findings)]
    why = (
        checks[0].reason
        if checks
        else "no case was selected or none fits the inputs (onnx-gate list --cases prints them)"
    )
    message = messages[0] if messages else f"no output was compared: {why}"
    return ModelError(kind="unverified", code=codes.OG402.code, message=message)
