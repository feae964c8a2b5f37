"""The commands that ask how sharp the gate is, and whether a file is what it verified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnx_gate.arguments import (
    DEFAULT_OUTPUT,
    FAILED,
    PASSED,
    CacheOption,
    FormatsOption,
    JobsOption,
    ManifestOption,
    ModelOption,
    OutputOption,
    RuntimeOption,
    SampleOption,
    ScoreOption,
    Texts,
    complain,
    load_manifest,
    refusing,
)


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
    from onnx_gate.gate.deliver import audit_and_deliver
    from onnx_gate.gate.options import Options
    from onnx_gate.text import printed, quote
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
            typer.echo(printed(f"{loaded.path}: changed what {quote(name)} is verified with"))
    raise typer.Exit(PASSED if report.verdict == "pass" else FAILED)


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
    from onnx_gate.attest.accept import refusals
    from onnx_gate.attest.statement import read
    from onnx_gate.text import printed

    with refusing():
        found = refusals(file, read(statement), require or ())
    for reason in found:
        complain(f"refused: {reason}")
    if not found:
        typer.echo(printed(f"{file}: what was verified"))
    raise typer.Exit(FAILED if found else PASSED)
