"""The commands that print what is known without a manifest."""

from __future__ import annotations

from typing import Annotated

import typer

from onnx_gate.arguments import CodeArgument, SchemaKind, refusing


def explain(code: CodeArgument = None) -> None:
    """Say what a finding means, why it matters and how to fix it."""
    from onnx_gate.findings import CATALOGUE, explanation

    if code is None:
        for entry in CATALOGUE.values():
            typer.echo(f"{entry.code}  {entry.title}")
        return
    with refusing():
        typer.echo(explanation(code))


def schema(
    kind: Annotated[SchemaKind, typer.Argument(help="Which schema.")] = SchemaKind.manifest,
) -> None:
    """Print the JSON Schema of the manifest, or of report.json."""
    if kind is SchemaKind.report:
        from onnx_gate.report.io import schema_text
    else:
        from onnx_gate.manifest.jsonschema import render as schema_text
    typer.echo(schema_text(), nl=False)
