"""The report as a table for a terminal."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_gate.report import summary
from onnx_gate.report.escape import plain
from onnx_gate.report.model import ModelResult, Report

_STYLES = {"pass": "green", "diverged": "red", "error": "magenta"}


def render(report: Report) -> str:
    """Return the table as plain text, 110 columns wide."""
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(renderable(report))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def renderable(report: Report) -> RenderableType:
    """Return the table, the findings and the verdict, for any Rich console."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Model", overflow="fold")
    table.add_column("Verdict")
    table.add_column("Checks", justify="right")
    table.add_column("Closest case", overflow="fold")
    table.add_column("Error", justify="right")
    table.add_column("Of tolerance", justify="right", no_wrap=True)
    table.add_column("Seconds", justify="right")
    for model in report.models:
        table.add_row(*_row(model))
    return Group(table, *_notes(report), _verdict(report))


def _row(model: ModelResult) -> tuple[Text, ...]:
    bad = summary.failing(model)
    check = bad[0] if bad else summary.closest(model.checks)
    verdict = model.verdict if model.required else f"{model.verdict} (not required)"
    error = summary.number(summary.error_of(check)) if check is not None else ""
    cells = (
        plain(model.name),
        verdict,
        str(summary.counted(model)),
        plain(check.case) if check is not None else (model.error.kind if model.error else ""),
        error,
        summary.used(check),
        f"{sum(stage.seconds for stage in model.stages):.1f}",
    )
    return tuple(
        Text(cell, style=_STYLES[model.verdict] if place == 1 else "")
        for place, cell in enumerate(cells)
    )


def _notes(report: Report) -> list[Text]:
    notes: list[Text] = []
    for model in summary.ordered(report.models):
        if model.verdict == "pass":
            continue
        text = Text(f"\n{plain(model.name)}", style="bold")
        text.append(f": {plain(summary.model_line(model))}", style=_STYLES[model.verdict])
        if model.error is not None:
            for line in model.error.message.splitlines()[1:]:
                text.append(f"\n    {plain(line)}", style="dim")
            if model.error.log:
                text.append(f"\n    log: {plain(model.error.log)}", style="dim")
        for finding in model.findings:
            if finding.severity != "note" and finding.code != "OG403":
                text.append(f"\n    {finding.code} {plain(finding.message)}", style="")
        notes.append(text)
    return notes


def _verdict(report: Report) -> Text:
    style = f"bold {_STYLES[report.verdict]}"
    return Text(f"\n{report.verdict}: {summary.headline(report)}", style=style)
