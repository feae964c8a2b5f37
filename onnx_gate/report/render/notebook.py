"""The report as a notebook shows it: a sentence, a table, what is wrong, and the whole page folded."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.render import html, terminal
from onnx_gate.report.story import summary
from onnx_gate.report.story.view import View
from onnx_gate.text import plain, visible

_COLUMNS = (
    "Model",
    "Verdict",
    "Checks",
    "Closest case",
    "Error",
    "Allowed",
    "Of tolerance",
    "Seconds",
)
_PAGE = Markup(
    "<details><summary>the whole report</summary>"
    '<iframe sandbox srcdoc="{}" style="width:100%;height:30rem;border:1px solid #8884"></iframe>'
    "</details>"
)


def render(report: Report) -> str:
    """Return a fragment of HTML without scripts.

    A viewer that strips frames, as GitHub's does, still shows everything but the details.
    """
    wrong = terminal.render(report, View(output=report.folder), terminal.QUIET).strip("\n")
    shown = "\n".join(visible(line) for line in wrong.splitlines())
    return Markup("").join(
        (
            Markup("<p><b>{} {}</b></p>").format(
                summary.MARKS[report.verdict], plain(summary.headline(report))
            ),
            Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
                Markup("").join(Markup("<th>{}</th>").format(name) for name in _COLUMNS),
                Markup("").join(_row(model) for model in summary.ordered(report.models)),
            ),
            Markup("<pre>{}</pre>").format(shown) if report.verdict != "pass" else Markup(""),
            _PAGE.format(html.render(report)),
        )
    )


def _row(model: ModelResult) -> Markup:
    cells = Markup("").join(Markup("<td>{}</td>").format(plain(cell)) for cell in _cells(model))
    return Markup("<tr>{}</tr>").format(cells)


def _cells(model: ModelResult) -> Iterator[str]:
    check = summary.worst(model)
    yield model.name
    yield model.verdict
    yield str(summary.counted(model))
    yield check.case if check is not None else ""
    yield from summary.error_and_limit(check) if check is not None else ("", "")
    yield summary.used(check)
    yield summary.seconds(model)
