"""The commands that ask which release of a package changed an answer."""

from __future__ import annotations

from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from onnx_gate.arguments import (
    DEFAULT_OUTPUT,
    FAILED,
    PASSED,
    FindLinksOption,
    ManifestOption,
    ModelOption,
    NoIndexOption,
    OptionalPath,
    OutputOption,
    PackageOption,
    RangeArgument,
    load_manifest,
    refuse,
    refusing,
)


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


def since(
    base: Annotated[
        Path, typer.Option("--base", metavar="FILE", help="Requirements, or a lock, as they were.")
    ],
    head: Annotated[Path, typer.Option("--head", metavar="FILE", help="The same as it is now.")],
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", min=0, help="Begin no further run after so many, and say what is known."
        ),
    ] = None,
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
    from onnx_gate.gate.options import Options
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
            seconds = inf if minutes is None else 60 * minutes
            report = ask(files, loaded, options, packages, Path(folder), typer.echo, seconds)
        write_report(report, output)
    for line in lines(report.since):
        typer.echo(line)
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)
