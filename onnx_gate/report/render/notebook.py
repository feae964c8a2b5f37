"""The report as a notebook shows it: a sentence, a table, what is wrong, and the whole page folded."""

from __future__ import annotations

from markupsafe import Markup

from onnx_gate.report.model import Report
from onnx_gate.report.render import html, terminal
from onnx_gate.report.story.story import Story, tell
from onnx_gate.report.story.summary import MARKS
from onnx_gate.text import plain, visible

_COLUMNS = (
    "Model",
    "Verdict",
    "Checks",
    "Worst case",
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
    run = tell(report)
    wrong = terminal.render(report, detail=terminal.QUIET).strip("\n")
    shown = "\n".join(visible(line) for line in wrong.splitlines())
    return Markup("").join(
        (
            Markup("<p><b>{} {}</b></p>").format(MARKS[report.verdict], plain(run.headline)),
            Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
                Markup("").join(Markup("<th>{}</th>").format(name) for name in _COLUMNS),
                Markup("").join(map(_row, run.ordered)),
            ),
            Markup("<pre>{}</pre>").format(shown) if report.verdict != "pass" else Markup(""),
            _PAGE.format(html.render(report)),
        )
    )


def _row(story: Story) -> Markup:
    worst = story.worst
    cells = [story.model.name, story.model.verdict, str(story.counted)]
    cells += [worst.check.case, worst.error, worst.allowed, worst.used] if worst else [""] * 4
    cells.append(story.seconds)
    shown = Markup("").join(Markup("<td>{}</td>").format(plain(cell)) for cell in cells)
    return Markup("<tr>{}</tr>").format(shown)
