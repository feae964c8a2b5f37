"""The command line: one function per command."""

from __future__ import annotations

import os
import signal
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

from onnx_gate.errors import UserError
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.text import did_you_mean, quote

if TYPE_CHECKING:
    from onnx_gate.manifest import Manifest, Optimization

PASSED, FAILED, INVALID = 0, 1, 2

app = typer.Typer(
    help="Does the ONNX model say what the PyTorch model says?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ManifestOption = Annotated[
    Path, typer.Option("--manifest", "-m", help="The manifest.", show_default=True)
]
DEFAULT_MANIFEST = Path("onnx-gate.yml")
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the report and the logs.")
]
DEFAULT_OUTPUT = Path("onnx-gate-report")
ModelOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - Typer reads this on Python 3.10
    typer.Option("--model", help="The models that match this glob only (repeatable)."),
]


class SchemaKind(str, Enum):
    """What ``onnx-gate schema`` prints."""

    manifest = "manifest"
    report = "report"


@app.command()
def run(
    manifest: ManifestOption = DEFAULT_MANIFEST,
    model: ModelOption = None,
    case: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--case", help="Try the cases that match this glob only (repeatable)."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Models side by side (0: one per core).")
    ] = 0,
    shard: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--shard", metavar="I/N", help="Verify one of N parts of the models only."),
    ] = None,
    baseline: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--baseline", metavar="REPORT", help="A report.json to compare with."),
    ] = None,
    output: OutputOption = DEFAULT_OUTPUT,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the exported ONNX files in the output.")
    ] = False,
    cache: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--cache",
            metavar="DIR",
            envvar="ONNX_GATE_CACHE",
            help="Take verdicts from here that still hold, and keep new ones.",
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Verify everything, whatever ONNX_GATE_CACHE says.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Say of each model what changed since its verdict.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where the error of a model came from.")
    ] = False,
) -> None:
    """Verify every model of the manifest; exit 0 passed, 1 diverged or error, 2 invalid call."""
    from onnx_gate.gate.deliver import deliver, verify_manifest
    from onnx_gate.gate.run import Options
    from onnx_gate.gate.shards import parse_shard

    if changed and (cache is None or no_cache):
        _refuse("--changed says what changed since the verdicts of a cache; name it with --cache")
    loaded = _load(manifest)
    try:
        options = Options(
            output=output,
            models=tuple(model or ()),
            cases=tuple(case or ()),
            shard=parse_shard(shard) if shard is not None else None,
            baseline=baseline,
            jobs=jobs,
            keep_models=keep_models,
            cache=None if no_cache else cache,
            changed=changed,
            traceback=traceback,
        )
        report = verify_manifest(loaded, options)
        deliver(report, output)
    except UserError as error:
        _refuse(str(error))
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)


@app.command()
def check(manifest: ManifestOption = DEFAULT_MANIFEST) -> None:
    """Validate the manifest; imports no torch and runs no code of the models."""
    loaded = _load(manifest)
    count = len(loaded.models)
    typer.echo(f"{manifest}: {count} model{'s' if count != 1 else ''}, no mistakes")


@app.command()
def plan(
    manifest: ManifestOption = DEFAULT_MANIFEST,
    model: ModelOption = None,
    shards: Annotated[
        str,
        typer.Option(
            "--shards",
            metavar="N|auto",
            help="How many (auto: one for 4 models, or for 5 minutes of work).",
        ),
    ] = "auto",
    durations: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            "--durations",
            metavar="REPORT",
            help="A report of an earlier run, or a folder of them, to balance by (repeatable).",
        ),
    ] = None,
) -> None:
    """Print the matrix of a workflow whose jobs share the models: {"shard": ["1/2", "2/2"]}."""
    import json

    from onnx_gate.gate.run import select
    from onnx_gate.gate.shards import described, matrix, parse_shards
    from onnx_gate.report.history import history_of
    from onnx_gate.report.io import read_report
    from onnx_gate.report.merge import find_reports

    loaded = _load(manifest)
    try:
        names = [spec.name for spec in select(loaded.models, tuple(model or ()))]
        count = parse_shards(shards)
        past = history_of(read_report(path) for path in find_reports(durations or ()))
        planned = matrix(names, count, past.seconds)
        if durations:
            typer.echo(described(names, planned["shard"], past.seconds), err=True)
        typer.echo(json.dumps(planned))
    except UserError as error:
        _refuse(str(error))


@app.command()
def merge(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="REPORT...", help="Files, or folders with report.json below them."),
    ],
    manifest: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--manifest", "-m", help="The manifest whose models have to be there."),
    ] = None,
    model: ModelOption = None,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Join the reports of the shards into one; exit 1 where one of them is missing."""
    from onnx_gate.gate.deliver import deliver, merge_reports

    if model and manifest is None:
        _refuse("--model selects models of a manifest; name it with --manifest")
    loaded = _load(manifest) if manifest is not None else None
    try:
        report = merge_reports(paths, output, loaded, tuple(model or ()))
        deliver(report, output)
    except UserError as error:
        _refuse(str(error))
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)


@app.command()
def report(
    path: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")],
    format: Annotated[
        str, typer.Option("--format", "-f", help="terminal, markdown, html, junit, sarif or json.")
    ] = "terminal",
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Write to this file instead of the terminal."),
    ] = None,
) -> None:
    """Render a report."""
    from onnx_gate.report.io import find_format, read_report, to_json, write_text

    try:
        loaded = read_report(path)
        text = to_json(loaded) if format == "json" else find_format(format)(loaded)
        if output is not None:
            write_text(output, text)
            return
    except UserError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{output}: {error.strerror or error}")
    typer.echo(text, nl=False)


@app.command()
def publish(
    path: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")],
    comment: Annotated[
        CommentPolicy, typer.Option(help="When to comment on the pull request.")
    ] = "changes",
    comment_id: Annotated[
        str, typer.Option(help="Tells the comments of several gates apart.")
    ] = "default",
    baseline: Annotated[
        str, typer.Option(help="auto, off, or the path of a report to compare with.")
    ] = "auto",
    manifest: ManifestOption = DEFAULT_MANIFEST,
) -> None:
    """Comment, summary, annotations and outputs on GitHub; the token is in GITHUB_TOKEN."""
    from onnx_gate.action.inputs import Inputs, checked
    from onnx_gate.action.main import publish_report
    from onnx_gate.report.io import read_report

    inputs = Inputs(
        directory=Path.cwd(),
        manifest=str(manifest),
        mode="publish",
        token=os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN") or "",
        comment=comment,
        comment_id=comment_id,
        baseline=baseline,
        output=str(path.parent),
    )
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    try:
        status = publish_report(read_report(path), checked(inputs, workspace), os.environ)
    except UserError as error:
        _refuse(str(error))
    raise typer.Exit(status)


@app.command()
def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with model.onnx and test_data_set_0.")
    ],
    runtime: Annotated[str, typer.Option(help="The engine: onnxruntime, reference, ...")] = (
        "onnxruntime"
    ),
    optimization: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="LEVEL",
            help="ONNX Runtime's level: off, basic, extended or all (none: its own default).",
        ),
    ] = None,
    provider: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="ONNX Runtime's execution provider."),
    ] = None,
    option: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="KEY=VALUE", help="A session option of ONNX Runtime (repeatable)."),
    ] = None,
    atol: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0, help="Absolute tolerance; without any, a few units of rounding."),
    ] = None,
    rtol: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0, help="Relative tolerance."),
    ] = None,
) -> None:
    """Run a reproduction, or one of ONNX's backend tests; exit 0 agrees, 1 differs, 2 invalid call."""
    from onnx_gate.diagnose.repro.replay import Limits, parse_options
    from onnx_gate.diagnose.repro.replay import replay as run_folder
    from onnx_gate.manifest import RuntimeSpec

    try:
        spec = RuntimeSpec(
            runtime,
            provider=provider,
            optimization=_level(optimization),
            session_options=parse_options(option or ()),
        )
        results = run_folder(folder, spec, Limits(atol, rtol))
    except UserError as error:
        _refuse(str(error))
    for result in results:
        typer.echo(str(result))
    raise typer.Exit(PASSED if all(result.agrees for result in results) else FAILED)


@app.command()
def explain(
    code: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="A finding's code, such as OG102; none lists them all."),
    ] = None,
) -> None:
    """Say what a finding means, why it matters and how to mend it."""
    from onnx_gate.findings import CATALOGUE, explanation

    if code is None:
        for entry in CATALOGUE.values():
            typer.echo(f"{entry.code}  {entry.title}")
        return
    try:
        typer.echo(explanation(code))
    except UserError as error:
        _refuse(str(error))


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


def _load(path: Path) -> Manifest:
    from onnx_gate.manifest import ManifestError
    from onnx_gate.manifest.load import load

    try:
        return load(path)
    except ManifestError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        count = len(error.problems)
        typer.echo(f"{path}: {count} mistake{'s' if count != 1 else ''}", err=True)
        raise typer.Exit(INVALID) from None


def _level(text: str | None) -> Optimization | None:
    from onnx_gate.manifest import OPTIMIZATIONS

    for level in OPTIMIZATIONS:
        if level == text:
            return level
    if text is not None:
        _refuse(f"--optimization: unknown level {quote(text)}{did_you_mean(text, OPTIMIZATIONS)}")
    return None


def _refuse(message: str) -> NoReturn:
    typer.echo(f"onnx-gate: {message}", err=True)
    raise typer.Exit(INVALID)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line."""
    # Whoever is told to stop tidies up first, as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except KeyboardInterrupt:
        typer.echo("onnx-gate: interrupted", err=True)
        sys.exit(130)
