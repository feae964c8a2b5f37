"""The report as a table for a terminal."""

from __future__ import annotations

import io
from pathlib import PurePosixPath

from rich.console import Console, Group, RenderableType
from rich.text import Text

from onnx_gate.findings.codes import code_of
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.report.render.columns import Column, Fitting, words
from onnx_gate.report.story import (
    audited,
    diagnosed,
    precision,
    sentence,
    side_by_side,
    summary,
    times,
)
from onnx_gate.report.story.command import replay_command, run_command
from onnx_gate.report.story.coverage import describe
from onnx_gate.report.story.explained import of_diagnosis
from onnx_gate.report.story.versus import change_cell, change_sentence, output_changes, tally
from onnx_gate.report.story.view import View
from onnx_gate.text import printed

WIDTH = 120
"""Columns where nobody says how many there are: a pipe, a file."""

QUIET, NORMAL, VERBOSE = -1, 0, 1
"""How much is shown: what is wrong; that, a table and the coverage; every check and note besides."""

_LIMIT = 500
_SENTENCE = 1200
_BLOCK = 4000
_LINES = 40
_STYLES = {"pass": "green", "diverged": "red", "error": "magenta"}


def render(report: Report, view: View | None = None, detail: int = NORMAL) -> str:
    """Return the table as plain text, ``WIDTH`` columns wide."""
    return plain_text(renderable(report, view or View(output=report.folder), detail))


def plain_text(shown: RenderableType) -> str:
    """Return what is shown as plain text, ``WIDTH`` columns wide."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    console.print(shown, crop=False)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def renderable(report: Report, view: View = View(), detail: int = NORMAL) -> RenderableType:
    """Return the table, the findings and the verdict, for any Rich console."""
    if detail == QUIET:
        notes = _notes(report, view, detail)
        return Group(_sentence(report, view), *notes, *_about(report), _verdict(report))
    return Group(
        _sentence(report, view),
        *_audits(report),
        *([_models(report)] if report.models else []),
        *_runtimes(report),
        *_compared(report),
        *(_checks(report) if detail == VERBOSE else []),
        *_notes(report, view, detail),
        *_precisions(report),
        *_about(report),
        *_times(report),
        _verdict(report),
    )


def _sentence(report: Report, view: View) -> Text:
    text = printed(sentence.of_report(report, view.manifest_path), _SENTENCE)
    return words(f"{text}\n", style="bold")


def _models(report: Report) -> Fitting:
    """A row for each model, or where there is no room for one, its cells in words."""
    compared = report.baseline is not None
    columns = [
        Column("Model"),
        Column("Verdict"),
        Column("Checks", numeric=True, spare=1),
        Column("Closest case"),
        Column("Error", numeric=True),
        Column("Allowed", numeric=True),
        Column("Of tolerance", numeric=True),
        *([Column("vs base")] if compared else []),
        Column("Seconds", numeric=True, spare=2),
    ]
    rows = [_row(model, compared) for model in report.models]
    records = [_record(model, compared) for model in report.models]
    return Fitting(columns, rows, records)


def _runtimes(report: Report) -> list[RenderableType]:
    """A row for each model and a column for each runtime, where there are several."""
    labels = side_by_side.runtimes(report)
    if not labels:
        return []
    rows, records = [], []
    for model in report.models:
        cells = [side_by_side.cell(model, label) for label in labels]
        name = Text(printed(model.name, _LIMIT, whole=0))
        rows.append((name, *(_runtime_cell(each) for each in cells)))
        record = Text("\n").join(
            [
                name,
                *(
                    Text(f"    {printed(label, _LIMIT)}: {each}")
                    for label, each in zip(labels, cells, strict=True)
                    if each
                ),
            ]
        )
        records.append(record)
    columns = [Column("On each runtime"), *(Column(printed(label, _LIMIT)) for label in labels)]
    return [Text(), Fitting(columns, rows, records)]


def _runtime_cell(cell: side_by_side.Cell | None) -> Text:
    return Text("") if cell is None else Text(printed(cell, _LIMIT), style=_STYLES[cell.verdict])


def _row(model: ModelResult, compared: bool) -> tuple[Text, ...]:
    check = summary.worst(model)
    error, allowed = summary.error_and_limit(check) if check is not None else ("", "")
    case = check.case if check is not None else (model.error.kind if model.error else "")
    cells = (
        printed(model.name, _LIMIT, whole=0),
        _verdict_word(model),
        str(summary.counted(model)),
        printed(case, _LIMIT, whole=0),
        printed(error, _LIMIT, whole=0),
        allowed,
        summary.used(check),
        *([change_cell(model, check)] if compared else []),
        "cached" if model.cached else summary.seconds(model),
    )
    return tuple(
        Text(cell, style=_STYLES[model.verdict] if column == 1 else "")
        for column, cell in enumerate(cells)
    )


def _record(model: ModelResult, compared: bool) -> Text:
    check = summary.worst(model)
    text = words(f"{printed(model.name, _LIMIT)}: ")
    text.append(_verdict_word(model), style=_STYLES[model.verdict])
    took = "from the cache" if model.cached else f"{summary.seconds(model)} s"
    text.append(f", {summary.counted(model)} checks, {took}")
    parts: list[str] = [model.error.kind] if model.error is not None else []
    if check is not None:
        parts.append(f"{check.case}: {sentence.measured(check) or check.reason}")
        parts.append(summary.used_sentence(check))
    if compared:
        parts.append(f"vs base {change_cell(model, check)}")
    if parts:
        text.append(f"\n  {printed(', '.join(parts), _LIMIT)}")
    return text


def _verdict_word(model: ModelResult) -> str:
    return model.verdict if model.required else f"{model.verdict} (not required)"


def _compared(report: Report) -> list[Text]:
    """A line for each model: what was compared, what was left open, at which sizes, how sharply."""
    described = [(model.name, describe(model)) for model in report.models]
    lines = [
        f"{printed(name, _LIMIT)}: {printed(line, _LIMIT)}" for name, line in described if line
    ]
    return [words("\n" + "\n".join(lines), "dim")] if lines else []


def _checks(report: Report) -> list[RenderableType]:
    """Every check on a line of its own, in the order in which they were made."""
    shown: list[RenderableType] = []
    columns = [Column("")] * 5
    for model in report.models:
        rows = []
        for check in model.checks:
            verdict = f"{check.verdict} (advice)" if check.advice else check.verdict
            cells = (check.runtime, check.case, check.output, verdict, summary.used(check))
            rows.append(tuple(Text(printed(cell, _LIMIT)) for cell in cells))
        records = [words(" ".join(cell.plain for cell in row)) for row in rows]
        if rows:
            title = words(f"\n{printed(model.name, _LIMIT)}: every check", style="bold")
            shown += [title, Fitting(columns, rows, records, header=False)]
    return shown


def _notes(report: Report, view: View, detail: int) -> list[Text]:
    """What there is to say of each model: of one that passes only where everything is asked for."""
    manifest = view.manifest_path or report.manifest.path
    notes: list[Text] = []
    for model in summary.ordered(report.models):
        if model.verdict == "pass" and detail < VERBOSE:
            continue
        text = words(f"\n{printed(model.name, _LIMIT)}", style="bold")
        text.append(f": {printed(summary.model_line(model), _LIMIT)}", style=_STYLES[model.verdict])
        if model.error is not None:
            for line in model.error.message[:_BLOCK].splitlines()[1:_LINES]:
                text.append(f"\n    {printed(line, _LIMIT)}", style="dim")
            if model.error.log:
                log = PurePosixPath(view.output, model.error.log)
                text.append(f"\n    log: {printed(log, _LIMIT)}", style="dim")
        if model.diagnosis is not None:
            _append_diagnosis(text, model.diagnosis, manifest)
        for finding in model.findings[:_LINES]:
            matters = finding.severity != "note" and not code_of(finding.code).advice
            if matters or detail == VERBOSE:
                text.append(f"\n    {finding.code} {printed(finding.message, _LIMIT)}", style="")
        if report.baseline is not None:
            text.append(f"\n    {change_sentence(model)}")
            for change in output_changes(model)[:_LINES]:
                text.append(f"\n      {printed(change, _LIMIT)}")
        notes += [text, *_commands(model, manifest, view)]
    return notes


def _commands(model: ModelResult, manifest: str, view: View) -> list[Text]:
    """What to paste into a shell: never wrapped, since a line that is cut is another command."""
    commands = {"replay": replay_command(model.diagnosis, view)}
    if model.verdict != "pass" and manifest:
        commands["again"] = run_command(manifest, model, summary.failing(model), view)
    return [
        Text(f"    {label}: {printed(command, whole=0)}", "dim", no_wrap=True, overflow="ignore")
        for label, command in commands.items()
        if command
    ]


def _append_diagnosis(text: Text, diagnosis: Diagnosis, manifest: str) -> None:
    blamed, *rest = of_diagnosis(diagnosis, manifest)
    text.append(f"\n    {printed(blamed, _LIMIT)}", style="bold")
    for line in rest:
        text.append(f"\n      {printed(line, _LIMIT)}")
    chart = diagnosed.sparkline(diagnosis)
    if chart:
        text.append(f"\n    error along the graph: {chart}", style="dim")


def _precisions(report: Report) -> list[Text]:
    """A block for each model whose file computes in fewer bits."""
    notes = []
    for model in report.models:
        if model.precision is None:
            continue
        first, *rest = precision.lines(model.precision)
        text = words(f"\n{printed(model.name, _LIMIT)}", style="bold")
        text.append(f": {printed(first, _LIMIT)}", style="not bold")
        for line in rest:
            text.append(f"\n    {printed(line, _LIMIT)}", style="not bold")
        notes.append(text)
    return notes


def _audits(report: Report) -> list[Text]:
    """A block for each model that was audited: its survivors first."""
    notes = []
    for model in report.models:
        if model.audit is None:
            continue
        first, *rest = audited.lines(model.audit, model.against)
        text = words(printed(model.name, _LIMIT), style="bold")
        text.append(f": {printed(first, _LIMIT)}", style="not bold")
        for line in rest:
            text.append(f"\n    {printed(line, _LIMIT)}", style="not bold")
        notes += [text, Text()]
    return notes


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
    texts = [words(printed(line, _LIMIT), style=style) for style, line in lines]
    return [Text(), *texts] if texts else []


def _times(report: Report) -> list[Text]:
    shown = times.lines(report)
    lines = "".join(f"\n{printed(line, _LIMIT)}" for line in shown)
    return [words(lines, "dim")] if lines else []


def _verdict(report: Report) -> Text:
    style = f"bold {_STYLES[report.verdict]}"
    text = words(f"\n{report.verdict}: {summary.headline(report)}", style=style)
    compared = tally(report)
    return text.append(f"\n{compared}", style="not bold") if compared else text
