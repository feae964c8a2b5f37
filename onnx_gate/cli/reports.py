"""The commands that take reports, or what lies beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from onnx_gate.arguments import (
    DEFAULT_OUTPUT,
    FAILED,
    PASSED,
    AtolOption,
    ManifestOption,
    ModelOption,
    OptimizationOption,
    OptionalNumber,
    OptionalPath,
    OptionalText,
    OutputOption,
    ReportArgument,
    ReportsArgument,
    SessionOption,
    level_of,
    load_manifest,
    refuse,
    refusing,
    token,
)
from onnx_gate.github.comment_policy import CommentPolicy

_FORMATS = "terminal, markdown, html, github, gitlab, json, junit or sarif."


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
    from onnx_gate.report.join.report_files import find_report
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
    from onnx_gate.action.action_inputs import Inputs, checked
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
