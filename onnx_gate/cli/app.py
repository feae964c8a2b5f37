"""The command line: a function for each command, a file for what belongs together."""

from __future__ import annotations

from typing import Annotated

import typer

from onnx_gate.cli.manifests import check, init, list_, plan
from onnx_gate.cli.releases import bisect, since
from onnx_gate.cli.reports import merge, publish, replay, report
from onnx_gate.cli.run import run
from onnx_gate.cli.sharper import attest_verify, audit
from onnx_gate.cli.texts import explain, schema

app = typer.Typer(
    help="Does the ONNX model say what the PyTorch model says?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # As wide as the terminal: of 80 columns, which are click's most, half are the options' names.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
attestations = typer.Typer(
    help="What a deployment asks of the statements of run --attest.", no_args_is_help=True
)
attestations.command("verify")(attest_verify)
app.command()(run)
app.command()(init)
app.command("list")(list_)
app.command()(check)
app.command()(plan)
app.command()(merge)
app.command()(report)
app.command()(publish)
app.command()(replay)
app.command()(audit)
app.add_typer(attestations, name="attest")
app.command()(bisect)
app.command()(since)
app.command()(explain)
app.command()(schema)


@attestations.callback()
def _attestations() -> None:
    """Keep ``verify`` a command of its own, though there is no other."""


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from onnx_gate import __version__

        typer.echo(f"onnx-gate {__version__}")
        raise typer.Exit
