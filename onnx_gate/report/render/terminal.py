"""The report as a table for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath

from rich.console import Console, Group, RenderableType
from rich.text import Text

from onnx_gate.report.model import Report
from onnx_gate.report.render.charts import sparkline
from onnx_gate.report.render.columns import Column, Fitting, words
from onnx_gate.report.story.side_by_side import Cell
from onnx_gate.report.story.story import Remark, RunStory, Story, Why, row, tell
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
_PATCH_LINES = 40
_STYLES = {"pass": "green", "diverged": "red", "error": "magenta"}


def render(
    report: Report, view: View | None = None, detail: int = NORMAL, width: int = WIDTH
) -> str:
    """Return the table as plain text, ``width`` columns wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable(report, view, detail), crop=False)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def renderable(report: Report, view: View | None = None, detail: int = NORMAL) -> RenderableType:
    """Return the table, the findings and the verdict, for any Rich console."""
    run = tell(report, view)
    several = len(run.failing) > 1 and not run.problems
    said = f"{run.headline}." if several else run.sentence
    first = words(f"{printed(said, _SENTENCE)}\n", style="bold")
    if detail == QUIET:
        return Group(first, *_notes(run, detail), *_about(run), _verdict(run))
    return Group(
        first,
        *(part for each in run.models if each.audit for part in (_block(each, each.audit), Text())),
        *([_models(run)] if run.models else []),
        *_runtimes(run),
        *_compared(run),
        *(_checks(run) if detail == VERBOSE else []),
        *_notes(run, detail),
        *(
            part
            for each in run.models
            if each.precision
            for part in (Text(), _block(each, each.precision))
        ),
        *_about(run),
        *_warnings(run, detail),
        *_times(run, detail),
        _verdict(run),
    )


def _models(run: RunStory) -> Fitting:
    """A row for each model, or where there is no room for one, its cells in words."""
    columns = [
        Column("Model"),
        Column("Verdict"),
        Column("Checks", numeric=True, spare=1),
        Column("Worst case"),
        Column("Error", numeric=True),
        Column("Allowed", numeric=True),
        Column("Of tolerance", numeric=True),
        *([Column("vs base")] if run.compared else []),
        Column("Seconds", numeric=True, spare=2),
    ]
    rows = [_row(each, run.compared) for each in run.models]
    return Fitting(columns, rows, [_record(each, run.compared) for each in run.models])


def _runtimes(run: RunStory) -> list[RenderableType]:
    """A row for each model that ran and a column for each runtime, where there are several."""
    if not run.runtimes:
        return []
    rows, records = [], []
    for each in (model for model in run.models if any(model.on)):
        name = Text(printed(each.model.name, _LIMIT, whole=0))
        rows.append((name, *map(_runtime_cell, each.on)))
        cells = [
            Text(f"    {printed(label, _LIMIT)}: {cell}")
            for label, cell in zip(run.runtimes, each.on, strict=True)
            if cell
        ]
        records.append(Text("\n").join([name, *cells]))
    columns = [Column("On each runtime"), *(Column(printed(name, _LIMIT)) for name in run.runtimes)]
    return [Text(), Fitting(columns, rows, records)]


def _runtime_cell(cell: Cell | None) -> Text:
    return Text("") if cell is None else Text(printed(cell, _LIMIT), style=_STYLES[cell.verdict])


def _row(story: Story, compared: bool) -> tuple[Text, ...]:
    model, worst = story.model, story.worst
    case = worst.check.case if worst else (model.error.kind if model.error else "")
    cells = (
        printed(model.name, _LIMIT, whole=0),
        story.verdict,
        str(story.counted),
        printed(case, _LIMIT, whole=0),
        printed(worst.error, _LIMIT, whole=0) if worst else "",
        worst.allowed if worst else "",
        worst.used if worst else "",
        *([story.change] if compared else []),
        "cached" if model.cached else story.seconds,
    )
    return tuple(
        Text(cell, style=_STYLES[model.verdict] if column == 1 else "")
        for column, cell in enumerate(cells)
    )


def _record(story: Story, compared: bool) -> Text:
    model, worst = story.model, story.worst
    text = words(f"{printed(model.name, _LIMIT)}: ")
    text.append(story.verdict, style=_STYLES[model.verdict])
    took = "from the cache" if model.cached else f"{story.seconds} s"
    text.append(f", {story.counted} checks, {took}")
    parts: list[str] = [model.error.kind] if model.error is not None else []
    if worst is not None:
        parts += [f"{worst.check.case}: {worst.measured or worst.check.reason}", worst.share]
    parts += [f"vs base {story.change}"] if compared else []
    return text.append(f"\n  {printed(', '.join(parts), _LIMIT)}") if parts else text


def _compared(run: RunStory) -> list[Text]:
    """A line for each model: what was compared, what was left open, at which sizes, how sharply."""
    lines = [
        f"{printed(each.model.name, _LIMIT)}: {printed(each.coverage, _LIMIT)}"
        for each in run.models
        if each.coverage
    ]
    return [words("\n" + "\n".join(lines), "dim")] if lines else []


def _checks(run: RunStory) -> list[RenderableType]:
    """Every check on a line of its own, in the order in which they were made."""
    shown: list[RenderableType] = []
    columns = [Column("")] * 5
    for each in run.models:
        rows = []
        for check in each.model.checks:
            verdict = f"{check.verdict} (advice)" if check.advice else check.verdict
            cells = (check.runtime, check.case, check.output, verdict, row(check).used)
            rows.append(tuple(Text(printed(cell, _LIMIT)) for cell in cells))
        records = [words(" ".join(cell.plain for cell in cells)) for cells in rows]
        if rows:
            title = words(f"\n{printed(each.model.name, _LIMIT)}: every check", style="bold")
            shown += [title, Fitting(columns, rows, records, header=False)]
    return shown


def _notes(run: RunStory, detail: int) -> list[Text]:
    """What there is to say of each model: of one that passes only where everything is asked for.

    Where several fail, each has its sentence and what to type for the rest of it.
    """
    notes: list[Text] = []
    alone = len(run.failing) == 1 and not run.problems
    for each in run.ordered if detail == VERBOSE else run.failing:
        whole = alone or detail == VERBOSE
        text = words(f"\n{printed(each.model.name, _LIMIT)}", style="bold")
        # That of the only one stands above the table.
        said = replace(each.sentence, subject=None) if each.fails and not alone else ""
        line = each.line if each.model.error is None else each.outcome
        style = _STYLES[each.model.verdict]
        text.append(f": {printed(said or line, _SENTENCE)}", style=style)
        if said and whole:
            text.append(f"\n    {printed(line, _LIMIT)}", style=style)
        _put_error(text, each, run)
        if each.why is not None and whole:
            _put_why(text, each.why)
            for other in each.further:
                _put_why(text, other, f"on {other.diagnosis.runtime}, otherwise: ")
        for fault in each.known:
            text.append(f"\n    {printed(fault, _LIMIT)}", style="bold")
        for remark in each.remarks[:_LINES]:
            if remark.matters or detail == VERBOSE:
                text.append(f"\n    {_remark(remark)}", style="")
        _put_remedies(text, each, whole=whole)
        if run.compared:
            text.append(f"\n    {each.since}")
            for change in each.outputs[:_LINES]:
                text.append(f"\n      {printed(change, _LIMIT)}")
        notes += [text, *_commands(each, run)]
    return notes


def _put_error(text: Text, story: Story, run: RunStory) -> None:
    error = story.model.error
    if error is None:
        return
    for line in error.message[:_BLOCK].splitlines()[1:_LINES]:
        text.append(f"\n    {printed(line, _LIMIT)}", style="dim")
    if error.log:
        log = PurePosixPath(run.view.output, error.log)
        text.append(f"\n    log: {printed(log, _LIMIT)}", style="dim")


def _put_why(text: Text, why: Why, where: str = "") -> None:
    blamed, *rest = why.lines
    text.append(f"\n    {printed(where + blamed, _LIMIT)}", style="bold")
    for line in rest:
        text.append(f"\n      {printed(line, _LIMIT)}")
    chart = sparkline(why.levels)
    if chart:
        text.append(f"\n    error along the graph: {chart}", style="dim")


def _put_remedies(text: Text, story: Story, *, whole: bool) -> None:
    for remedy in story.remedies:
        text.append(f"\n    {printed(remedy.sentence, _LIMIT)}", style="green")
        for line in remedy.patch.splitlines()[:_PATCH_LINES] if whole else ():
            text.append(f"\n      {printed(line, _LIMIT, whole=0)}", style="dim")


def _remark(remark: Remark) -> str:
    return f"{remark.finding.code} {printed(remark.finding.message, _LIMIT)}"


def _warnings(run: RunStory, detail: int) -> list[Text]:
    """A line for each warning about a model that passes; the failing ones have theirs above."""
    lines = [
        f"{printed(each.model.name, _LIMIT)}: {_remark(remark)}"
        for each in (run.passing if detail < VERBOSE else ())
        for remark in each.remarks[:_LINES]
        if remark.finding.severity == "warning"
    ]
    return [words("\n" + "\n".join(lines), "yellow")] if lines else []


def _commands(story: Story, run: RunStory) -> list[Text]:
    """What to paste into a shell: never wrapped, since a line that is cut is another command."""
    again = story.again if story.fails and run.manifest else ""
    return [
        Text(f"    {label}: {printed(command, whole=0)}", "dim", no_wrap=True, overflow="ignore")
        for label, command in (*(("replay", replay) for replay in story.replays), ("again", again))
        if command
    ]


def _block(story: Story, lines: Iterable[str]) -> Text:
    first, *rest = lines
    text = words(printed(story.model.name, _LIMIT), style="bold")
    text.append(f": {printed(first, _LIMIT)}", style="not bold")
    for line in rest:
        text.append(f"\n    {printed(line, _LIMIT)}", style="not bold")
    return text


def _about(run: RunStory) -> list[Text]:
    """What is about the run and not about a model: problems, changes, notes, the sandbox."""
    lines: list[tuple[str, str]] = []
    for place, (problem, line, _) in enumerate(run.problems):
        # The first is what all begins with.
        if place or line not in str(run.sentence):
            lines.append(("red", f"problem: {line}"))
        lines += [("dim", f"| {each}") for each in problem.tail[-_LINES:]]
    lines += [("yellow", f"the manifest asks less: {line}") for _, line, _ in run.changes]
    lines += [("", line) for line in run.packages]
    lines += [("dim", f"note: {note}") for note in run.report.notes]
    lines += [("yellow", run.sandbox)] if run.exposed else []
    texts = [words(printed(line, _LIMIT), style=style) for style, line in lines]
    return [Text(), *texts] if texts else []


def _times(run: RunStory, detail: int) -> list[Text]:
    shown = run.seconds if detail == VERBOSE else run.seconds[:1]
    lines = "".join(f"\n{printed(line, _LIMIT)}" for line in shown)
    return [words(lines, "dim")] if lines else []


def _verdict(run: RunStory) -> Text:
    verdict = run.report.verdict
    text = words(f"\n{verdict}: {run.headline}", style=f"bold {_STYLES[verdict]}")
    return text.append(f"\n{run.against}", style="not bold") if run.against else text
