"""One model, from its entry in the manifest to its result."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import torch

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.known import of_error
from onnx_gate.manifest import COMMAND, EXPORTERS, ModelSpec
from onnx_gate.report.model import Check, ModelError, ModelResult, Portion, Verdict
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes import state
from onnx_gate.runtimes.half import HALF, Range
from onnx_gate.verify import left_out
from onnx_gate.verify.afterwards import (
    AdvisoryCases,
    Explain,
    advised,
    explained,
    probed,
    room_for_a_fork,
    too_large,
)
from onnx_gate.verify.ahead import asked_ahead, may_fork_beside
from onnx_gate.verify.alike import alike_weights
from onnx_gate.verify.asked import Ahead
from onnx_gate.verify.baked import baked_size
from onnx_gate.verify.blocks.verify import in_blocks, verify_blocks
from onnx_gate.verify.build import build
from onnx_gate.verify.checks import Checker, ModuleSetting
from onnx_gate.verify.conclude import conclude, undecided, unverified
from onnx_gate.verify.context import Context, Reduced
from onnx_gate.verify.determinism import repeat
from onnx_gate.verify.drawn import weigh_draws
from onnx_gate.verify.effectless import effectless
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.export.reuse import delete_export, load_export, save_export_metadata
from onnx_gate.verify.exporting import export_prepared
from onnx_gate.verify.file_limits import learn_of_file
from onnx_gate.verify.half import first_beyond, headroom, with_half
from onnx_gate.verify.inputs.sizes import elements, tried_sizes
from onnx_gate.verify.inspect.altered import altered_by
from onnx_gate.verify.inspect.exact import exact_weights
from onnx_gate.verify.inspect.inspect import inspect_graph, join_inputs
from onnx_gate.verify.inspect.instead import Instead
from onnx_gate.verify.inspect.made import MadeOfNoInput
from onnx_gate.verify.inspect.reduced import reduced_precision
from onnx_gate.verify.inspect.weights import account
from onnx_gate.verify.left_out import leave_out
from onnx_gate.verify.load_errors import ExplainedLoads
from onnx_gate.verify.loading import Loading
from onnx_gate.verify.nonfinite import placed
from onnx_gate.verify.prepare import Prepared, prepare
from onnx_gate.verify.probing import may_probe
from onnx_gate.verify.progress import Emit, Progress
from onnx_gate.verify.proposal import Measured, note, precision_of
from onnx_gate.verify.reach.code import named_in_code
from onnx_gate.verify.reference.file import with_file_inputs
from onnx_gate.verify.remarks import Tried
from onnx_gate.verify.source_lines import source_of
from onnx_gate.verify.steps.course import check_steps
from onnx_gate.verify.subject import Locate
from onnx_gate.verify.switched import Attributes, must_not_switch, plain, told_of
from onnx_gate.verify.versions import version_findings
from onnx_gate.verify.waive import waive
from onnx_gate.workers import tracebacks

Follow = Callable[[ModelResult, Checker, Exported, Emit], ModelResult]

# Numbers that a model and its inputs hold, up to which it is computed by one thread, whatever there
# is: it takes milliseconds.
SMALL = 2**20


def verify(
    spec: ModelSpec,
    context: Context,
    emit: Emit,
    explain: Explain | None = None,
    start: float | None = None,
    follow: Follow | None = None,
    locate: Locate | None = None,
) -> ModelResult:
    """Build, export, inspect, run and compare one model.

    ``emit`` gets ``{"kind": "stage", "name": ...}`` as stages begin. ``explain`` is asked for a
    diagnosis of a model that diverges. ``start`` is the seconds that it took to get here. ``follow``
    goes on with the cases and PyTorch's answers at hand, before advice and diagnosis. ``locate`` finds the
    first wrong node of a block, where the model is verified block by block.
    """
    began = time.monotonic()
    progress = Progress(emit)
    if start is not None:
        progress.took("start", start)
    with ExitStack() as forks:
        try:
            spec = with_file_inputs(spec, context.workspace)
            if in_blocks(spec, context.workspace):
                if follow is not None:
                    raise codes.OG434.error(
                        f"models.{spec.name}: an audit, and answers for another machine, take the "
                        "whole model; write verify: whole, and memory for it"
                    )
                return _by_blocks(spec, replace(context, reuse=False), progress, locate)
            result, checker, exported, advisory = _verify(spec, context, progress, forks)
        except GateError as error:
            if not context.reuse:
                tracebacks.report(error, emit)
                return _failed(spec, context, progress, error)
            result = None
        if result is None or (context.reuse and result.verdict != "pass"):
            # Whatever is wrong shall be said of an export of now, with all that is known of it.
            forks.close()
            delete_export(context.folder)
            lost = (start or 0.0) + time.monotonic() - began
            return verify(spec, replace(context, reuse=False), emit, explain, lost, follow, locate)
        if result.error is not None:
            print(f"{result.error.kind}: {result.error.message}", file=sys.stderr)
        own = (start or 0.0) + time.monotonic() - began
        if follow is not None:
            with progress.stage("audit" if context.audit is not None else "answers"):
                result = follow(result, checker, exported, emit)
            checker.tally.answered.clear()  # as large as all inputs and outputs together
            result = result.model_copy(update={"stages": tuple(progress.stages)})
        if not room_for_a_fork(spec):
            result = too_large(spec, result) if explain is not None else result
            return _decided(spec, context, result)
        if not context.patterns and not spec.suites:
            result = advised(spec, context, result, advisory, progress, own)
    checker.explorer.opened = any(
        check.suite == REACHED and "rounding" in check.causes for check in result.checks
    )
    if result.verdict == "pass" and may_probe(checker):
        result = probed(context, result, checker, exported, progress, own)
    result = _decided(spec, context, result)
    if explain is None:
        return result
    left = spec.timeout - (time.monotonic() - began)
    return explained(result, checker, exported, context, progress, explain, left)


def _by_blocks(
    spec: ModelSpec, context: Context, progress: Progress, locate: Locate | None
) -> ModelResult:
    """Verify a model with what one of its blocks needs; whole runs have more that is tried."""
    walked = verify_blocks(spec, context, progress, locate)
    portion = walked.portion
    elsewhere = portion is not None and portion.index > 1
    tried = Tried(
        walked.experience, walked.without_any, bool(context.patterns), elsewhere, walked.not_numbers
    )
    findings = (*progress.findings, *walked.findings)
    verdict, checks, findings = conclude(spec, walked.checks, findings, tried, context.today)
    result = _result(spec, progress, verdict, checks, findings)
    update: dict[str, object] = {
        "runtimes": walked.runtimes,
        "diagnosis": walked.diagnosis,
        "decisions": walked.decisions,
        **_of_bits(spec, walked.reduced, walked.measured, walked.ranges),
    }
    if portion is not None and portion.count > 1:
        update["portion"] = Portion(index=portion.index, count=portion.count, of=portion.of)
    return _decided(spec, context, result.model_copy(update=update))


def _decided(spec: ModelSpec, context: Context, result: ModelResult) -> ModelResult:
    """Make an error of a pass of which less was shown than the manifest asks for."""
    found = tuple(undecided(spec, result.decisions))
    if result.verdict != "pass" or context.patterns or not found:
        return result
    error, findings = unverified(result.checks, found), (*result.findings, *found)
    return result.model_copy(update={"verdict": "error", "error": error, "findings": findings})


def _verify(
    spec: ModelSpec, context: Context, progress: Progress, forks: ExitStack
) -> tuple[ModelResult, Checker, Exported, AdvisoryCases]:
    began = time.monotonic()
    with progress.stage("build"):
        built = build(spec, context.workspace)
        progress.findings += built.findings
        if _is_small(spec, built.module):
            context = replace(context, threads=1)
            torch.set_num_threads(1)
        as_built = plain(built.module)
        prepared = prepare(spec, context, built.module)
        progress.findings += prepared.findings
        check_steps(spec, prepared.example, prepared.call.outputs, prepared.sizes)
    # An export loads what makes locks between processes, which a module may have.
    beside = may_fork_beside(spec, context, prepared.eager.module)
    ahead = Ahead()
    earlier = load_export(context.folder) if context.reuse else None
    if earlier is not None:
        exported, inspected = earlier
        reduced = reduced_precision(exported.proto, exported.exporter, prepared.eager.module)
        _must_agree(prepared, "called again", as_built)
        progress.exported(exported.info)
        progress.findings += inspected
    else:
        with progress.stage("export"):
            with asked_ahead(spec, context, prepared, beside=beside) as told:
                exported, after = export_prepared(spec, context, prepared)
            progress.exported(exported.info)
        changed, prepared = after.eager.module is not prepared.eager.module, after
        ahead = Ahead() if changed else told()
        progress.findings += prepared.findings
        with progress.stage("inspect"):
            reduced = reduced_precision(exported.proto, exported.exporter, prepared.eager.module)
            inspected = tuple(inspect_graph(spec, exported, reduced))
            progress.findings += inspected
        if context.record and not changed and exported.exporter not in ("file", COMMAND):
            save_export_metadata(exported, inspected)
    if spec.reference is None:
        with progress.stage("weights"):
            progress.weights, wrong = account(
                exported.proto,
                exported.path.parent,
                prepared.eager.module,
                prepared.call.changed,
                exact_weights(
                    spec,
                    exported.exporter,
                    reduced,
                    partial(altered_by, prepared.eager, prepared.example),
                    context.today,
                ),
                _instead(spec, prepared, exported),
                MadeOfNoInput(prepared.eager, prepared.example),
            )
        progress.findings += wrong
    prepared = leave_out(prepared, exported)
    spec = with_half(spec, exported.proto)
    if reduced is not None:
        progress.findings.append(note(reduced))
    checker = checker_of(spec, context, prepared, exported, reduced)
    loading = Loading(
        progress.loading, context.crashes, ExplainedLoads(context.workspace.resolve())
    )
    checker.setting = replace(checker.setting, loading=loading)
    checker.explorer.weights = progress.weights
    beside &= not prepared.call.leaves_a_trace
    tries = context.advise and not context.patterns and not spec.suites
    advisory = AdvisoryCases(checker, beside=beside and tries)
    forks.callback(advisory.end)
    with progress.split("verify", checker.tally.clock):
        ahead = Ahead() if prepared.eager.left_out else ahead
        tally = checker.run(ahead)
        with tally.clock.of("pytorch"):
            _must_agree(prepared, "called again on equal inputs after other calls", as_built)
        taken = time.monotonic() - began
        room = room_for_a_fork(spec)
        progress.findings += must_not_switch(as_built, prepared, checker, taken, room=room)
        progress.findings[:] = weigh_draws(
            checker, exported, tally.checks, tuple(progress.findings)
        )
        waived, _ = waive(spec, tally.checks, context.today)
        if room and not context.patterns and all(c.verdict == "pass" for c in tally.checks):
            with tally.clock.of("pytorch"):
                progress.findings += effectless(checker, ahead.suspects)
                progress.findings += alike_weights(checker, prepared, exported)
        progress.findings += baked_size(checker, waived, progress.findings)
    progress.findings += (*tally.findings, *left_out.findings(prepared.eager))
    decisions = checker.explorer.account(context.workspace)
    tried = Tried(
        tally.experience,
        tally.without_any,
        bool(context.patterns),
        not_numbers=lambda: state.not_numbers(state.tensors(prepared.eager.module)),
    )
    verdict, checks, findings = conclude(
        spec, tally.checks, progress.findings, tried, context.today
    )
    findings = tuple(placed(checker, checks, findings, context.workspace))
    result = _result(spec, progress, verdict, checks, findings)
    more = {
        "runtimes": tally.runtimes,
        "decisions": decisions,
        **_of_bits(
            spec,
            reduced,
            tally.measured,
            tally.ranges,
            checker.setting.graph_outputs,
            tuple(tally.experience),
        ),
    }
    return result.model_copy(update=more), checker, exported, advisory


def _of_bits(
    spec: ModelSpec,
    reduced: Reduced | None,
    measured: Sequence[Measured],
    ranges: tuple[Range, ...],
    graph: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> dict[str, object]:
    """Return what is reported of a file's bits: what they cost, and how near to its ends values were.

    ``graph`` is what the file calls what PyTorch, or the manifest, calls ``outputs``.
    """
    # No tolerance is meant for values that leave the range.
    beyond = first_beyond(ranges) is not None
    meant = [each for each in measured if each.runtime != HALF or not beyond]
    precision = precision_of(reduced, meant, spec, graph, outputs)
    return {"precision": precision, "headroom": headroom(ranges)}


def _is_small(spec: ModelSpec, module: torch.nn.Module) -> bool:
    """Return whether one thread is enough for a model.

    More change the order of its sums: what is near its limit would be judged by how many models are
    verified side by side.
    """
    if spec.reference is not None:
        return False
    held = sum(math.prod(state.shape(tensor) or ()) for _, tensor in state.tensors(module))
    return held + max(elements(spec.inputs, sizes) for sizes in tried_sizes(spec)) <= SMALL


def _instead(spec: ModelSpec, prepared: Prepared, exported: Exported) -> Instead | None:
    """Return the file with what PyTorch says on the example; torch's exporters change no weights."""
    if exported.exporter in EXPORTERS:
        return None
    names = join_inputs(spec, exported)
    feeds = {graph: prepared.example[name] for name, graph in names.items()}
    return Instead(exported.path, feeds, prepared.call.outputs.arrays)


def _must_agree(prepared: Prepared, when: str, as_built: Attributes) -> None:
    difference = prepared.agrees_still()
    if difference and prepared.call.drawn:
        repeat(prepared.eager, prepared.example, prepared.call)
    if difference:
        raise codes.OG106.error(
            f"the model disagrees with itself: {when}, {difference}; it keeps state between calls"
            f"{told_of(as_built, prepared.eager.module)}, and a graph keeps none"
        )


def checker_of(
    spec: ModelSpec,
    context: Context,
    prepared: Prepared,
    exported: Exported,
    reduced: Reduced | None,
) -> Checker:
    """Return what compares a module and its file, before any case."""
    setting = ModuleSetting(
        spec=spec,
        eager=prepared.eager,
        path=exported.path,
        graph_inputs=join_inputs(spec, exported),
        graph_outputs=tuple(value.name for value in exported.proto.graph.output),
        example=exported.example,
        workspace=context.workspace,
        patterns=context.patterns,
        threads=context.threads,
        reduced=reduced,
        keeps=context.audit is not None or context.answers,
        written=prepared.call.changed,
        numbers=exported.numbers
        if exported.exporter == "dynamo"
        else named_in_code(prepared.eager.module),
    )
    checker = Checker(setting)
    learn_of_file(checker, exported)
    return checker


def _failed(spec: ModelSpec, context: Context, progress: Progress, error: GateError) -> ModelResult:
    source = source_of(error, context.workspace.resolve())
    said: dict[str, object] = {
        "kind": error.kind,
        "code": error.code,
        "message": error.message,
        "remedy": error.remedy,
        "otherwise": error.otherwise,
        "line": error.line,
        "source": source,
        "changes": [{"key": key, "value": value} for key, value in error.changes],
        "known": of_error(error, spec.export.exporter),
    }
    failure = ModelError.model_validate(said)
    return _result(spec, progress, "error", (), tuple(progress.findings), failure)


def _result(
    spec: ModelSpec,
    progress: Progress,
    verdict: Verdict,
    checks: tuple[Check, ...],
    findings: tuple[Finding, ...],
    error: ModelError | None = None,
) -> ModelResult:
    if verdict == "error" and error is None:
        error = unverified(checks, findings)
    return ModelResult(
        name=spec.name,
        verdict=verdict,
        required=spec.required,
        error=error,
        stages=tuple(progress.stages),
        export=progress.export,
        findings=(*findings, *version_findings()),
        checks=checks,
        weights=progress.weights,
    )
