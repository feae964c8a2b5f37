"""From checks and findings to the verdict on a model: pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import Check, ModelError, Verdict
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.report.story.extent import COMPARED
from onnx_gate.text import listed, output_called
from onnx_gate.verify.inspect.weighed import weighed
from onnx_gate.verify.remarks import Tried, _at, remarks
from onnx_gate.verify.waive import waive


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
    if not tried.elsewhere:
        checks = _answered_where_refused(spec, checks)
    judged, notes = waive(spec, checks, today)
    findings = [
        weighed(each, judged) if each.code == codes.OG116.code else each for each in findings
    ]
    every = list(dict.fromkeys([*findings, *notes]))
    failed = any(check.verdict == "diverged" and not check.advice for check in judged)
    failed = failed or any(
        finding.severity == "error" and finding.code != codes.OG307.code for finding in every
    )
    unverified = list(_not_compared(spec, judged, every, tried))
    every += [*unverified, *remarks(spec, _own(judged), tried)]
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
    if not tried.elsewhere:
        yield from _untested_dimensions(spec, counting, compared, findings)
    if not tried.selected and not tried.elsewhere:
        yield from _untested_suites(spec, counting, tried)
        yield from _untested_steps(spec, compared)
    yield from _uncompared_outputs(spec, _own(compared), tried)
    for name, experience in tried.outputs.items():
        if experience.accepted and not experience.refused:
            yield codes.OG402.finding(
                f"the tolerance of {output_called(name)} takes the answer of another case for the "
                f"right one ({experience.accepted}), so it can hardly fail: name one that can "
                "see the difference"
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
        sizes = ", ".join(map(str, sorted(missing)))
        if missing == tried:
            fitting = next((f.data for f in findings if f.data.get("dimension") == name), None)
            known = f", such as dims: {{{name}: {fitting['sizes']}}}" if fitting else ""
            yield codes.OG402.finding(
                f"{spec.against} refuses every size of {name!r} that was tested ({sizes}), so it is "
                f"verified at none: name sizes under dims that the model is made for{known}"
            )
        elif name in spec.named_dims:
            yield codes.OG402.finding(
                f"the manifest declares {name}={sizes} under dims, and no case of that size was "
                "compared: both sides refuse it. Name sizes that the model is made for"
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
            why = f"{spec.against} refuses all of its {len({c.case for c in own})} cases"
        else:
            continue
        yield codes.OG402.finding(f"nothing was compared in the suite {name}: {why}")


def _uncompared_outputs(
    spec: ModelSpec, compared: Sequence[Check], tried: Tried
) -> Iterator[Finding]:
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
            if held_by := tried.not_numbers():
                yield codes.OG402.finding(
                    f"no element of the output {name} was compared: {why}, and NaN or infinity is in the "
                    f"model's own weights: {listed(held_by, 3)}. Fetch or write the checkpoint again",
                    data={"parameters": list(held_by)},
                )
                continue
        instead = "Give the inputs ranges or sizes, or a generator, that make it mean something"
        experience = tried.outputs.get(name)
        if experience is not None and experience.is_constant and any(c.open for c in checks):
            instead = (
                f"It was {experience.low:g} in every case: where that is meant to be nothing but "
                "rounding, give the output a tolerance of its own, with atol"
            )
        yield codes.OG402.finding(f"no element of the output {name} was compared: {why}. {instead}")


def _answered_where_refused(spec: ModelSpec, checks: Sequence[Check]) -> tuple[Check, ...]:
    """Let a file diverge that answers at a size of ``dims`` at which PyTorch refuses every case.

    Elsewhere it need not refuse the sizes and inputs that PyTorch does.
    """
    at: dict[str, list[Check]] = {}
    for check in checks:
        for name in spec.named_dims & check.sizes.keys():
            at.setdefault(f"{name}={check.sizes[name]}", []).append(check)
    refused = [
        label for label, own in at.items() if all("pytorch" in check.refused for check in own)
    ]
    return tuple(
        check.model_copy(update={"verdict": "diverged"})
        if check.refused == ("pytorch",) and not check.advice and _at(check, refused)
        else check
        for check in checks
    )


def unverified(checks: tuple[Check, ...], findings: tuple[Finding, ...]) -> ModelError:
    """Return why a model has no verdict although it ran: a runtime that failed goes first."""
    failed = next(codes.OG307.among(findings), None)
    if failed is not None:
        said = {name: value for name, value in failed.data.items() if name != "runtime"}
        others = sorted(
            {c.runtime for c in checks if c.compared and c.runtime != failed.data["runtime"]}
        )
        if others and said["code"] == codes.OG202.code:
            said["remedy"] = (
                f"use a dtype that it has, float32 as a rule; {listed(others, 2)} ran the file and agrees: "
                "name it alone under runtimes where the file is for an engine that has the kernel"
            )
        return ModelError.model_validate(said)
    messages = [finding.message for finding in codes.OG402.among(findings)]
    why = (
        checks[0].reason
        if checks
        else "no case was selected or none fits the inputs (onnx-gate list --cases prints them)"
    )
    message = messages[0] if messages else f"no output was compared: {why}"
    return ModelError(kind="unverified", code=codes.OG402.code, message=message)
