"""Several runs as text, as Markdown, and as a part of the page: pure functions of their history."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from onnx_gate.report.render import html, terminal
from onnx_gate.report.render.columns import Column, Fitting, words
from onnx_gate.report.render.escape import code, inline
from onnx_gate.report.story import runs
from onnx_gate.report.story.runs import Runs, Series
from onnx_gate.report.story.versus import share_of_limit
from onnx_gate.text import plain, printed

_NAME = 200
_ROWS = 200
_LIMIT = 500
_SAID = 40
_WIDTH, _HEIGHT, _PAD = 160, 32, 3
# Powers of ten of the limit that a line shows; its middle is the limit.
_POWERS = 4.0


def renderable(history: Runs) -> RenderableType:
    """Return the sentence, the runs, a line for each output, and every output that got worse."""
    every = [
        (run.label, _time(run.time), run.verdict, plain(run.name, _NAME)) for run in history.runs
    ]
    columns = [Column("Commit"), Column("Time"), Column("Verdict"), Column("Report", spare=1)]
    outputs = [_cells(each, history) for each in history.series[:_ROWS]]
    titles = [Column(title) for title in ("Model", "Output", "History", "Was", "Is", "Since")]
    parts: list[RenderableType] = [
        words(f"{printed(runs.headline(history), _LIMIT)}\n", style="bold"),
        _table(columns, every),
        Text(),
        _table(titles, outputs),
    ]
    worse = [words(f"  {printed(line, _LIMIT)}") for line in _worse(history)]
    notes = [words(f"note: {printed(note, _LIMIT)}", "dim") for note in _notes(history)]
    return Group(*parts, *([Text("\nFailing or worse:"), *worse] if worse else []), *notes)


def text(history: Runs) -> str:
    """Return what a terminal shows, as plain text."""
    return terminal.plain_text(renderable(history))


def page(history: Runs) -> str:
    """Return the last report's page, with the history in it."""
    return html.render(history.latest, section(history))


def markdown(history: Runs) -> str:
    """Return the same as Markdown."""
    lines = [f"## {inline(runs.headline(history), _LIMIT)}", ""]
    lines += ["| Commit | Time | Verdict | Report |", "|:--|:--|:--|:--|"]
    lines += [
        f"| {code(run.label, 60)} | {_time(run.time)} | {run.verdict} | {code(run.name, _NAME)} |"
        for run in history.runs
    ]
    lines += ["", "| Model | Output | History | Was | Is | Since |", "|:--|:--|:--|--:|--:|:--|"]
    for series in history.series[:_ROWS]:
        model, output, bars, was, now, since = _cells(series, history)
        shown = (
            code(model, 60),
            code(output, 60) if output else "",
            bars,
            was,
            now,
            code(since, 60) if since else "",
        )
        lines.append(f"| {' | '.join(shown)} |")
    worse = _worse(history)
    lines += ["", *(f"- {inline(line, _LIMIT)}" for line in worse)]
    lines += ["", *(f"- note: {inline(note, _LIMIT)}" for note in _notes(history))]
    return "\n".join(lines).rstrip() + "\n"


def section(history: Runs) -> Markup:
    """Return the part of the page: the sentence, and a table with a line for each output."""
    rows = Markup("").join(_page_row(series, history) for series in history.series[:_ROWS])
    items = [*_worse(history), *(f"note: {each}" for each in _notes(history))]
    notes = Markup("").join(Markup("<li>{}</li>").format(plain(each, _LIMIT)) for each in items)
    heads = Markup("").join(
        Markup('<th scope="col">{}</th>').format(title)
        for title in ("Model", "Output", f"Over {len(history.runs)} runs", "Was", "Is", "Since")
    )
    return Markup(
        '<section id="history" aria-labelledby="history-title">'
        '<h2 id="history-title">Since when</h2><p>{headline}</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="History of each output"><table>'
        "<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div><ul>{notes}</ul></section>"
    ).format(headline=plain(runs.headline(history), _LIMIT), heads=heads, rows=rows, notes=notes)


def _page_row(series: Series, history: Runs) -> Markup:
    model, output, _, was, now, since = _cells(series, history)
    cells = (model, output, _line(series, history), was, now, since)
    return Markup("<tr>{}</tr>").format(
        Markup("").join(Markup("<td>{}</td>").format(cell) for cell in cells)
    )


def _line(series: Series, history: Runs) -> Markup:
    """Return a small picture: the share of the limit in each run, the limit as a dashed line."""
    step = (_WIDTH - 2 * _PAD) / max(1, len(series.points) - 1)
    path, marks = [], []
    pen = "M"
    for place, point in enumerate(series.points):
        if point is None or point.share is None or math.isnan(point.share):
            pen = "M"  # over a run without a number there is no line
            continue
        height = 0.5 - min(0.5, max(-0.5, runs.power_of_limit(point.share) / (2 * _POWERS)))
        x = f"{_PAD + place * step:.1f}"
        y = f"{_PAD + height * (_HEIGHT - 2 * _PAD):.1f}"
        path.append(f"{pen}{x} {y}")
        pen = "L"
        radius = "1.5" if point.state == "pass" else "3"
        marks.append(Markup('<circle cx="{}" cy="{}" r="{}"/>').format(x, y, radius))
    named = zip(history.runs, series.points, strict=True)
    told = [f"{run.label} {_said(point)}" for run, point in named]
    return Markup(
        '<svg role="img" aria-label="{label}" width="{w}" height="{h}" viewBox="0 0 {w} {h}" '
        'fill="currentColor" stroke="currentColor">'
        '<path d="M0 {middle}H{w}" stroke-dasharray="2 3" opacity=".6"/>'
        '<path d="{path}" fill="none"/>{marks}</svg>'
    ).format(
        label=f"share of the limit: {', '.join(told[-_SAID:])}",
        w=_WIDTH,
        h=_HEIGHT,
        middle=_HEIGHT // 2,
        path="".join(path),
        marks=Markup("").join(marks),
    )


def _said(point: runs.Point | None) -> str:
    if point is None:
        return "is without it"
    return share_of_limit(point.share) if point.share is not None else point.state


def _cells(series: Series, history: Runs) -> tuple[str, ...]:
    """Return model, output, sparkline, share before and now, and since when."""
    before = series.points[series.before] if series.before is not None else None
    last = series.points[-1]
    return (
        printed(series.model, _NAME),
        printed(series.output, _NAME),
        runs.sparkline(series),
        _said(before) if before is not None else "",
        _said(last) if last is not None else "gone",
        history.runs[series.since].label if series.since is not None else "",
    )


def _table(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> Fitting:
    titled = [
        ", ".join(f"{c.title}: {cell}" for c, cell in zip(columns, row, strict=True) if cell)
        for row in rows
    ]
    texts = [tuple(Text(cell) for cell in row) for row in rows]
    return Fitting(columns, texts, [words(line) for line in titled])


def _worse(history: Runs) -> list[str]:
    """Return what fails or got worse, where it is more than the headline has said."""
    lines = runs.sentences(history)
    return lines[:_ROWS] if len(lines) > 1 else []


def _notes(history: Runs) -> list[str]:
    left = len(history.series) - _ROWS
    return [*history.notes, *([f"{left} more outputs are not shown"] if left > 0 else [])]


def _time(time: object) -> str:
    return f"{time:%Y-%m-%d %H:%M}" if time is not None else ""


RENDERINGS = {"terminal": text, "markdown": markdown, "html": page}
"""What several reports can be rendered as."""
