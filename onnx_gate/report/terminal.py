"""The report as a table for a terminal."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_gate.findings.codes import code_of
from onnx_gate.report import diagnosed, summary, times
from onnx_gate.report.coverage import describe
from onnx_gate.report.model import Diagnosis, ModelResult, Report
from onnx_gate.report.versus import change_cell, change_sentence, tally
from onnx_gate.text import printed

_LIMIT = 500
_BLOCK = 4000
_LINES = 40
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
    if report.baseline is not None:
        table.add_column("vs base", no_wrap=True)
    table.add_column("Seconds", justify="right")
    for model in report.models:
        table.add_row(*_row(model, compared=report.baseline is not None))
    shown: list[RenderableType] = [table] if report.models else []
    return Group(
        *shown,
        *_compared(report),
        *_notes(report),
        *_about(report),
        *_times(report),
        _verdict(report),
    )


def _row(model: ModelResult, compared: bool) -> tuple[Text, ...]:
    check = summary.worst(model)
    verdict = model.verdict if model.required else f"{model.verdict} (not required)"
    error = summary.number(summary.error_of(check)) if check is not None else ""
    case = check.case if check is not None else (model.error.kind if model.error else "")
    cells = (
        printed(model.name, _LIMIT, whole=0),
        verdict,
        str(summary.counted(model)),
        printed(case, _LIMIT, whole=0),
        error,
        summary.used(check),
        *([change_cell(model, check)] if compared else []),
        "cached" if model.cached else summary.seconds(model),
    )
    return tuple(
        Text(cell, style=_STYLES[model.verdict] if column == 1 else "")
        for column, cell in enumerate(cells)
    )


def _compared(report: Report) -> list[Text]:
    """A line for each model: what was compared, what was left open, at which sizes, how sharply."""
    described = [(model.name, describe(model)) for model in report.models]
    lines = [
        f"{printed(name, _LIMIT)}: {printed(line, _LIMIT)}" for name, line in described if line
    ]
    return [Text("\n" + "\n".join(lines), "dim")] if lines else []


def _notes(report: Report) -> list[Text]:
    notes: list[Text] = []
    for model in summary.ordered(report.models):
        if model.verdict == "pass":
            continue
        text = Text(f"\n{printed(model.name, _LIMIT)}", style="bold")
        text.append(f": {printed(summary.model_line(model), _LIMIT)}", style=_STYLES[model.verdict])
        if model.error is not None:
            for line in model.error.message[:_BLOCK].splitlines()[1:_LINES]:
                text.append(f"\n    {printed(line, _LIMIT)}", style="dim")
            if model.error.log:
                text.append(f"\n    log: {printed(model.error.log, _LIMIT)}", style="dim")
        if model.diagnosis is not None:
            _append_diagnosis(text, model.diagnosis)
        for finding in model.findings[:_LINES]:
            if finding.severity != "note" and not code_of(finding.code).advice:
                text.append(f"\n    {finding.code} {printed(finding.message, _LIMIT)}", style="")
        if report.baseline is not None:
            text.append(f"\n    {change_sentence(model)}")
        notes.append(text)
    return notes


def _append_diagnosis(text: Text, diagnosis: Diagnosis) -> None:
    text.append(f"\n    {diagnosed.sentence(diagnosis)}", style="bold")
    evidence = diagnosed.deciding(diagnosis)
    if evidence is not None:
        text.append(f"\n      {printed(f'{evidence.experiment}: {evidence.outcome}', _LIMIT)}")
    node = diagnosis.node
    if node is not None:
        where = f" in {node.module}" if node.module else ""
        text.append(f"\n    first wrong at {printed(f'{node.op_type} {node.name}{where}', _LIMIT)}")
    if diagnosis.fused_by:
        text.append(f"\n    the fusion is {printed(diagnosis.fused_by, _LIMIT)}")
    if diagnosis.source is not None:
        line = summary.format_int(diagnosis.source.line)
        source = f"{diagnosis.source.file}:{line}: {diagnosis.source.code}"
        text.append(f"\n      {printed(source, _LIMIT)}")
    if diagnosis.note:
        text.append(f"\n    {printed(diagnosis.note, _LIMIT)}", style="dim")
    chart = diagnosed.sparkline(diagnosis)
    if chart:
        text.append(f"\n    error along the graph: {chart}", style="dim")
    if diagnosis.repro:
        text.append(f"\n    repro: {printed(diagnosis.repro, _LIMIT)}", style="dim")


def _about(report: Report) -> list[Text]:
    """What is about the run and not about a model: problems, changes, notes, the sandbox."""
    lines: list[tuple[str, str]] = []
    for each in report.problems:
        lines.append(("red", f"problem: {summary.problem_line(each)}"))
        lines += [("dim", f"| {line}") for line in each.tail[-_LINES:]]
    lines += [
        ("yellow", f"the manifest asks less: {summary.change_line(each)}")
        for each in report.changes
    ]
    lines += [("dim", f"note: {note}") for note in report.notes]
    if report.sandbox is not None and report.sandbox.level in ("partial", "none"):
        lines.append(("yellow", summary.sandbox(report)))
    texts = [Text(printed(line, _LIMIT), style=style) for style, line in lines]
    return [Text(), *texts] if texts else []


def _times(report: Report) -> list[Text]:
    shown = times.lines(report)
    return [Text("\n" + "\n".join(printed(line, _LIMIT) for line in shown), "dim")] if shown else []


def _verdict(report: Report) -> Text:
    style = f"bold {_STYLES[report.verdict]}"
    text = Text(f"\n{report.verdict}: {summary.headline(report)}", style=style)
    compared = tally(report)
    return text.append(f"\n{compared}", style="not bold") if compared else text
