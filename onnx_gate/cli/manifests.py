"""The commands that write, read and plan a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnx_gate.arguments import (
    FAILED,
    PASSED,
    CaseOption,
    DurationsOption,
    GivenOption,
    ManifestOption,
    ModelOption,
    OptionalText,
    Paths,
    RecordOption,
    SaidOption,
    ShardsOption,
    TargetArgument,
    load_manifest,
    refuse,
    refuse_manifest,
    refusing,
)
from onnx_gate.errors import UserError
from onnx_gate.text import counted, printed


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
    from onnx_gate.init.init import InitOptions, manifest_for, parse_arguments, parse_inputs
    from onnx_gate.init.init import init as write_manifest
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
        typer.echo(printed(f"{loaded.path}: {counted(count, 'model')}, no mistakes"))


def plan(
    manifest: ManifestOption = None,
    model: ModelOption = None,
    shards: ShardsOption = "auto",
    durations: DurationsOption = None,
) -> None:
    """Print the matrix of a workflow whose jobs share the models.

    It is one line of JSON: {"shard": ["1/2", "2/2"]}. Several jobs may share the blocks of a model that
    has verify: blocks.
    """
    import json

    from onnx_gate.gate.history import history_of
    from onnx_gate.gate.select import select
    from onnx_gate.gate.shards import described, divisible, matrix, parse_shards
    from onnx_gate.report.io import read_report
    from onnx_gate.report.join.report_files import find_reports

    loaded = load_manifest(manifest)
    with refusing():
        selected = select(loaded.models, tuple(model or ()))
        names, may = [spec.name for spec in selected], divisible(selected)
        count = parse_shards(shards)
        past = history_of(read_report(path) for path in find_reports(durations or ()))
        planned = matrix(names, count, past.seconds, may)
        if durations or may:
            typer.echo(described(names, planned["shard"], past.seconds, may), err=True)
        typer.echo(json.dumps(planned))
