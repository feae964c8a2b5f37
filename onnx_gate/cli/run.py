"""The command that verifies."""

from __future__ import annotations

from typing import Annotated

import typer

from onnx_gate.arguments import (
    DEFAULT_OUTPUT,
    FAILED,
    PASSED,
    BaselineOption,
    CacheOption,
    CaseOption,
    FormatsOption,
    JobsOption,
    ManifestOption,
    ModelOption,
    OptionalPath,
    OutputOption,
    RuntimeOption,
    ShardOption,
    detail_of,
    load_manifest,
    refuse,
    refusing,
)


def run(
    manifest: ManifestOption = None,
    model: ModelOption = None,
    case: CaseOption = None,
    runtime: RuntimeOption = None,
    jobs: JobsOption = 0,
    shard: ShardOption = None,
    baseline: BaselineOption = None,
    output: OutputOption = DEFAULT_OUTPUT,
    format: FormatsOption = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the exported ONNX files in the output.")
    ] = False,
    attest: Annotated[
        OptionalPath,
        typer.Option(
            "--attest",
            metavar="DIR",
            help="Write what was verified of each file as in-toto statements, unsigned.",
        ),
    ] = None,
    answers: Annotated[
        OptionalPath,
        typer.Option(
            "--answers",
            metavar="DIR",
            help="Write down the models' files and PyTorch's answers, for --against elsewhere.",
        ),
    ] = None,
    against: Annotated[
        OptionalPath,
        typer.Option(
            "--against",
            metavar="DIR",
            help="Hold the runtimes of this machine against such answers; without torch.",
        ),
    ] = None,
    cache: CacheOption = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Verify everything, whatever ONNX_GATE_CACHE says.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Say of each model what changed since its verdict.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every check and every note.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show what is wrong, and nothing else.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where the error of a model came from.")
    ] = False,
    remedies: Annotated[
        float,
        typer.Option(
            "--remedies",
            min=0,
            metavar="TIMES",
            help="How many times the run's own time to spend on trying what fixes red models; 0: none.",
        ),
    ] = 1.0,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put the remedies that were seen to hold into your files.")
    ] = False,
) -> None:
    """Verify every model of the manifest.

    Exit status: 0 every required model passed, 1 one diverged or could not be verified, 2 the call
    or the manifest is invalid, 130 interrupted; what was verified until then is in the report.
    """
    from onnx_gate.gate.answers_folder import open_answers
    from onnx_gate.gate.deliver import verify_and_deliver
    from onnx_gate.gate.options import Options
    from onnx_gate.gate.provenance import commit_of
    from onnx_gate.gate.shards import parse_shard

    if attest is not None and case:
        refuse("--attest says what all cases of a model came to: leave --case out")
    if changed and (cache is None or no_cache):
        refuse("--changed says what changed since the verdicts of a cache; name it with --cache")
    if against is not None and (manifest or answers or attest or changed):
        refuse(
            "--against has its models from the report: leave --manifest, --answers, --attest and "
            "--changed out"
        )
    if fix and (not remedies or case or answers or against):
        refuse(
            "--fix puts in what was tried: leave --remedies 0, --case, --answers and --against out"
        )
    detail = detail_of(verbose, quiet)
    with refusing():
        carried = open_answers(against) if against is not None else None
        loaded = load_manifest(manifest) if carried is None else carried.manifest
        options = Options(
            output=output,
            models=tuple(model or ()),
            cases=tuple(case or ()),
            runtimes=tuple(runtime or ()),
            shard=parse_shard(shard) if shard is not None else None,
            baseline=baseline,
            jobs=jobs,
            keep_models=keep_models,
            cache=None if no_cache or carried is not None else cache,
            changed=changed,
            journal=None if no_cache or carried is not None else cache or output,
            traceback=traceback,
            answers=answers,
            against=carried,
            remedies=remedies,
            commit=commit_of(loaded.workspace) if carried is None else carried.held.commit,
        )
        report = verify_and_deliver(loaded, options, tuple(format or ()), detail)
        if fix:
            from onnx_gate.gate.fix import fix as put_in

            for line in put_in(report, loaded.workspace, output):
                typer.echo(line)
        if attest is not None:
            from onnx_gate.attest.write import write_statements
            from onnx_gate.report.layout import Layout

            write_statements(report, loaded, Layout(output).report, attest)
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)
