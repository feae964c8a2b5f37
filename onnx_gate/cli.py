"""The command line: one function per command."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from onnx_gate.arguments import (
    DEFAULT_OUTPUT,
    FAILED,
    PASSED,
    AtolOption,
    BaselineOption,
    CacheOption,
    CaseOption,
    CodeArgument,
    DurationsOption,
    FindLinksOption,
    FormatsOption,
    GivenOption,
    JobsOption,
    ManifestOption,
    ModelOption,
    NoIndexOption,
    OptimizationOption,
    OptionalNumber,
    OptionalPath,
    OptionalText,
    OutputOption,
    PackageOption,
    Paths,
    RangeArgument,
    RecordOption,
    ReportArgument,
    ReportsArgument,
    RuntimeOption,
    SaidOption,
    SampleOption,
    SchemaKind,
    ScoreOption,
    SessionOption,
    ShardOption,
    ShardsOption,
    TargetArgument,
    Texts,
    detail_of,
    level_of,
    load_manifest,
    refuse,
    refuse_manifest,
    refusing,
    token,
)
from onnx_gate.errors import UserError
from onnx_gate.github.comment_policy import CommentPolicy

_FORMATS = "terminal, markdown, html, github, gitlab, json, junit or sarif."

_PATIENCE = 5.0  # seconds
_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it

app = typer.Typer(
    help="Does the ONNX model say what the PyTorch model says?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # As wide as the terminal: of 80 columns, which are click's most, half are the options' names.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@app.command()
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
            help="How many times the run's own time to spend on trying what mends red models; 0: none.",
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
    from onnx_gate.gate.answers import open_answers
    from onnx_gate.gate.deliver import verify_and_deliver
    from onnx_gate.gate.provenance import commit_of
    from onnx_gate.gate.run import Options
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


@app.command()
def init(
    target: TargetArgument,
    manifest: ManifestOption = None,
    record: RecordOption = None,
    arg: GivenOption = None,
    input: SaidOption = None,
    name: Annotated[
        OptionalText,
        typer.Option("--name", help="What to call the model (none: by its class or file)."),
    ] = None,
) -> None:
    """Write a first manifest for a model, or add the model to one.

    Tries what the model takes, or records it, writes what it learned, and verifies it once. Exit
    status as for run; 2 where nothing could be learned, and nothing was written.
    """
    from onnx_gate.init.command import InitOptions, manifest_for, parse_arguments, parse_inputs
    from onnx_gate.init.command import init as write_manifest
    from onnx_gate.manifest import ManifestError

    path = manifest or manifest_for(Path.cwd())
    try:
        said = parse_inputs(input or ())
        options = InitOptions(target, path, name, parse_arguments(arg or ()), record, said)
        passed = write_manifest(options, typer.echo)
    except ManifestError as error:
        refuse_manifest(path, error)
    except UserError as error:
        refuse(str(error))
    raise typer.Exit(PASSED if passed else FAILED)


@app.command("list")
def list_(
    manifest: ManifestOption = None,
    model: ModelOption = None,
    case: CaseOption = None,
    cases: Annotated[
        bool, typer.Option("--cases", help="Every case on a line of its own, as --case takes it.")
    ] = False,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help="What inputs have shown of each model's decisions; runs the models, and no file.",
        ),
    ] = False,
) -> None:
    """Print the models, cases and sizes that a run would try.

    Without torch, and without running code of the models: what a generator yields is known when it
    has run, and a model may refuse the sizes that its export would begin with. With --decisions the
    models are run, each in a process of its own.
    """
    from onnx_gate.gate.listing import listing
    from onnx_gate.gate.select import select

    loaded = load_manifest(manifest)
    with refusing():
        selected = select(loaded.models, tuple(model or ()))
        if decisions:
            from onnx_gate.gate.decisions import decisions as decided

            for line in decided(selected, loaded.workspace):
                typer.echo(line)
            return
        for line in listing(selected, loaded.workspace, tuple(case or ()), every_case=cases):
            typer.echo(line)


@app.command()
def check(
    paths: Annotated[
        Paths,
        typer.Argument(metavar="[FILE]...", help="Manifests; without any, as --manifest says."),
    ] = None,
    manifest: ManifestOption = None,
) -> None:
    """Validate the manifest.

    Without torch, and without running code of the models.
    """
    for path in paths or (manifest,):
        loaded = load_manifest(path, files=True)
        count = len(loaded.models)
        typer.echo(f"{loaded.path}: {count} model{'s' if count != 1 else ''}, no mistakes")


@app.command()
def plan(
    manifest: ManifestOption = None,
    model: ModelOption = None,
    shards: ShardsOption = "auto",
    durations: DurationsOption = None,
) -> None:
    """Print the matrix of a workflow whose jobs share the models.

    It is one line of JSON: {"shard": ["1/2", "2/2"]}.
    """
    import json

    from onnx_gate.gate.history import history_of
    from onnx_gate.gate.select import select
    from onnx_gate.gate.shards import described, matrix, parse_shards
    from onnx_gate.report.io import read_report
    from onnx_gate.report.join.merge import find_reports

    loaded = load_manifest(manifest)
    with refusing():
        names = [spec.name for spec in select(loaded.models, tuple(model or ()))]
        count = parse_shards(shards)
        past = history_of(read_report(path) for path in find_reports(durations or ()))
        planned = matrix(names, count, past.seconds)
        if durations:
            typer.echo(described(names, planned["shard"], past.seconds), err=True)
        typer.echo(json.dumps(planned))


@app.command()
def merge(
    paths: ReportsArgument,
    manifest: Annotated[
        OptionalPath,
        typer.Option("--manifest", "-m", help="The manifest whose models have to be there."),
    ] = None,
    model: ModelOption = None,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Join the reports of the shards into one.

    Exit status: as of run, and 1 where the report of a model or of a shard is missing.
    """
    from onnx_gate.gate.deliver import deliver, merge_reports

    if model and manifest is None:
        refuse("--model selects models of a manifest; name it with --manifest")
    loaded = load_manifest(manifest) if manifest is not None else None
    with refusing():
        report = merge_reports(paths, output, loaded, tuple(model or ()))
        deliver(report, output)
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)


@app.command()
def report(
    path: ReportArgument,
    format: Annotated[str, typer.Option("--format", "-f", help=_FORMATS)] = "terminal",
    output: Annotated[
        OptionalPath, typer.Option("--output", "-o", help="Write to this file, print nothing.")
    ] = None,
    issue: Annotated[
        bool, typer.Option("--issue", help="What upstream needs of each red model, as Markdown.")
    ] = False,
    model: ModelOption = None,
) -> None:
    """Render a report in one of the formats.

    With --issue it runs the reproductions that lie beside the report, made smaller.
    """
    from onnx_gate.report.io import read_report, write_text
    from onnx_gate.report.join.merge import find_report
    from onnx_gate.report.render.screen import put
    from onnx_gate.report.story.view import View

    with refusing():
        file = find_report(path)
        if model and not issue:
            refuse("--model names the models of --issue")
        if issue:
            from onnx_gate.diagnose.repro.issue import issues

            text = "\n".join(issues(read_report(file), file.parent, tuple(model or ())))
            write_text(output, text) if output is not None else typer.echo(text)
            return
        put(read_report(file), format, View(output=str(file.parent)), output)


@app.command()
def publish(
    path: ReportArgument,
    comment: Annotated[
        CommentPolicy, typer.Option(help="When to comment on the pull request.")
    ] = "changes",
    comment_id: Annotated[
        str, typer.Option(help="Tells the comments of several gates apart.")
    ] = "default",
    baseline: Annotated[
        str, typer.Option(help="auto, off, or the path of a report to compare with.")
    ] = "auto",
    manifest: ManifestOption = None,
) -> None:
    """Write comment, summary, annotations and outputs on GitHub.

    The token is in GITHUB_TOKEN.
    """
    from onnx_gate.action.inputs import Inputs, checked
    from onnx_gate.action.main import publish_report
    from onnx_gate.manifest.find import usual_manifest
    from onnx_gate.report.io import read_report

    inputs = Inputs(
        directory=Path.cwd(),
        manifest=str(manifest or usual_manifest(Path.cwd())),
        mode="publish",
        token=token(),
        comment=comment,
        comment_id=comment_id,
        baseline=baseline,
        output=str(path.parent),
    )
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    with refusing():
        status = publish_report(read_report(path), checked(inputs, workspace), os.environ)
    raise typer.Exit(status)


@app.command()
def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with model.onnx and test_data_set_0.")
    ],
    runtime: Annotated[str, typer.Option(help="The engine: onnxruntime, reference, ...")] = (
        "onnxruntime"
    ),
    optimization: OptimizationOption = None,
    provider: Annotated[
        OptionalText, typer.Option(help="ONNX Runtime's execution provider.")
    ] = None,
    device: Annotated[
        OptionalText, typer.Option(help="The device, as another engine calls it.")
    ] = None,
    option: SessionOption = None,
    atol: AtolOption = None,
    rtol: Annotated[OptionalNumber, typer.Option(min=0, help="Relative tolerance.")] = None,
) -> None:
    """Run a reproduction, or one of ONNX's backend tests.

    Exit status: 0 the runtime agrees with the stored outputs, 1 it differs, 2 the call is invalid.
    """
    from onnx_gate.diagnose.repro.replay import Limits, runtime_of
    from onnx_gate.diagnose.repro.replay import replay as run_folder

    with refusing():
        level = level_of(optimization)
        spec = runtime_of(runtime, level, provider, device, option or ())
        results = run_folder(folder, spec, Limits(atol, rtol))
    for result in results:
        typer.echo(str(result))
    raise typer.Exit(PASSED if all(result.agrees for result in results) else FAILED)


@app.command()
def audit(
    manifest: ManifestOption = None,
    model: ModelOption = None,
    runtime: RuntimeOption = None,
    jobs: JobsOption = 0,
    sample: SampleOption = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which faults are drawn.")] = 0,
    min_score: ScoreOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Put what catches the survivors into the manifest.")
    ] = False,
    output: OutputOption = DEFAULT_OUTPUT,
    format: FormatsOption = None,
    cache: CacheOption = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Try everything anew, whatever is remembered.")
    ] = False,
) -> None:
    """Say which faults this manifest would catch.

    Seeds faults that happen into each exported graph and its inputs, and judges them with the
    manifest's own suites and tolerances. Exit status: 0 every required model passed (and reaches
    --min-score), 1 one did not, 2 the call or the manifest is invalid, 130 interrupted; what was
    tried until then is not tried again.
    """
    from onnx_gate.gate.audit import audit_and_deliver
    from onnx_gate.gate.run import Options
    from onnx_gate.text import quote
    from onnx_gate.verify.context import AuditRequest

    loaded = load_manifest(manifest)
    with refusing():
        options = Options(
            output=output,
            models=tuple(model or ()),
            runtimes=tuple(runtime or ()),
            jobs=jobs,
            cache=None if no_cache else cache,
            journal=None if no_cache else cache or output,
            audit=AuditRequest(sample, seed, min_score),
        )
        report, changed = audit_and_deliver(loaded, options, tuple(format or ()), write=write)
        for name in changed:
            typer.echo(f"{loaded.path}: changed what {quote(name)} is verified with")
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)


attestations = typer.Typer(
    help="What a deployment asks of the statements of run --attest.", no_args_is_help=True
)
app.add_typer(attestations, name="attest")


@attestations.callback()
def _attestations() -> None:
    """Keep ``verify`` a command of its own, though there is no other."""


@attestations.command("verify")
def attest_verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ONNX file to be deployed.")],
    statement: Annotated[
        Path, typer.Option("--statement", "-s", help="What --attest wrote: NAME.parity.json.")
    ],
    require: Annotated[
        Texts,
        typer.Option(
            "--require", "-r", metavar="KEY=VALUE", help="What it has to say; repeatable."
        ),
    ] = None,
) -> None:
    """Hold a file, and its external data, against the statement of what was verified.

    Who wrote the statement is for its signature to say, and not checked here. Exit status: 0 it is
    the file and all that is required was found, 1 it is not, 2 the call or the statement is invalid.
    """
    from onnx_gate.attest.check import refusals
    from onnx_gate.attest.statement import read

    with refusing():
        found = refusals(file, read(statement), require or ())
    for reason in found:
        typer.echo(f"refused: {reason}", err=True)
    if not found:
        typer.echo(f"{file}: what was verified")
    raise typer.Exit(FAILED if found else PASSED)


@app.command()
def bisect(
    releases: RangeArgument,
    package: PackageOption,
    manifest: ManifestOption = None,
    model: ModelOption = None,
    against: Annotated[
        OptionalPath,
        typer.Option(
            "--against", metavar="DIR", help="Of an engine: the answers of run --answers to hold."
        ),
    ] = None,
    find_links: FindLinksOption = None,
    no_index: NoIndexOption = False,
) -> None:
    """Say with which release of a package a model's verdict changed.

    Each release that is tried is installed into an environment of its own, which is kept. Of an
    engine, files and PyTorch's answers are held fast; of any other package, the module. Exit status: 0
    a release was found, 1 both ends have the same verdict, 2 the call or the manifest is invalid.
    """
    from onnx_gate.since.bisect import Query
    from onnx_gate.since.bisect import bisect as search
    from onnx_gate.since.environments import installer
    from onnx_gate.since.releases import parse_range

    if against is not None and manifest is not None:
        refuse("--against has its models from the answers: leave --manifest out")
    with refusing():
        asked = Query(package, parse_range(releases), tuple(model or ()), against)
        packages = installer(find_links or (), no_index=no_index)
        loaded = load_manifest(manifest) if against is None else None
        found = search(asked, loaded, packages, typer.echo)
    raise typer.Exit(PASSED if found else FAILED)


@app.command()
def since(
    base: Annotated[
        Path, typer.Option("--base", metavar="FILE", help="Requirements, or a lock, as they were.")
    ],
    head: Annotated[Path, typer.Option("--head", metavar="FILE", help="The same as it is now.")],
    manifest: ManifestOption = None,
    model: ModelOption = None,
    output: OutputOption = DEFAULT_OUTPUT,
    find_links: FindLinksOption = None,
    no_index: NoIndexOption = False,
) -> None:
    """Say which package of a changed lock changed which answer.

    Verifies with the head's packages. PyTorch, the export and the engines are then asked one by one, all
    else held fast. The report has it, too. Exit status as for run, of the models with the packages of
    --head.
    """
    from onnx_gate.gate.deliver import write_report
    from onnx_gate.gate.run import Options
    from onnx_gate.report.story.since import lines
    from onnx_gate.since.environments import installer
    from onnx_gate.since.locks import changed_pins
    from onnx_gate.since.since import since as ask

    loaded = load_manifest(manifest)
    with refusing():
        packages = installer(find_links or (), no_index=no_index)
        options = Options(output=output, models=tuple(model or ()))
        with TemporaryDirectory(prefix="onnx-gate-since-") as folder:
            files = changed_pins(base, head, packages)
            report = ask(files, loaded, options, packages, Path(folder), typer.echo)
        write_report(report, output)
    for line in lines(report.since):
        typer.echo(line)
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)


@app.command()
def explain(code: CodeArgument = None) -> None:
    """Say what a finding means, why it matters and how to mend it."""
    from onnx_gate.findings import CATALOGUE, explanation

    if code is None:
        for entry in CATALOGUE.values():
            typer.echo(f"{entry.code}  {entry.title}")
        return
    with refusing():
        typer.echo(explanation(code))


@app.command()
def schema(
    kind: Annotated[SchemaKind, typer.Argument(help="Which schema.")] = SchemaKind.manifest,
) -> None:
    """Print the JSON Schema of the manifest, or of report.json."""
    if kind is SchemaKind.report:
        from onnx_gate.report.io import schema_text
    else:
        from onnx_gate.manifest.jsonschema import render as schema_text
    typer.echo(schema_text(), nl=False)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from onnx_gate import __version__

        typer.echo(f"onnx-gate {__version__}")
        raise typer.Exit


def _stopper() -> Callable[[int, object], None]:
    """Return what a signal calls: it stops the run, and lets nothing disturb the end of it.

    What is finished is written and shown first, in about a second, which an impatient second Ctrl-C
    would lose. Later ones stop again, should Python have dropped the exception in a finaliser.
    """
    stopped = -_PATIENCE

    def stop(number: int, frame: object) -> None:
        nonlocal stopped
        now = time.monotonic()
        if now - stopped < _PATIENCE:
            return
        stopped = now
        with suppress(OSError):
            os.write(2, b"\nonnx-gate: interrupted\n")
        raise KeyboardInterrupt

    return stop


def main() -> None:
    """Run the command line."""
    stop = _stopper()
    for each in (signal.SIGINT, signal.SIGTERM):
        if (
            signal.getsignal(each) is not signal.SIG_IGN
        ):  # as a shell has it for what it runs with &
            signal.signal(each, stop)
    try:
        app()
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            # Python gives handlers of ours up as it shuts down: a late signal would change the status.
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_IGN)
        raise
