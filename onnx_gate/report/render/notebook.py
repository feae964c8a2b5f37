"""The report as a notebook shows it: a sentence, a table, what is wrong, and the page with its pictures.

The page is open where something is wrong, and folded where not.
"""

from __future__ import annotations

from markupsafe import Markup

from onnx_gate.report.model import Report
from onnx_gate.report.render import html, terminal
from onnx_gate.report.story.story import Story, tell
from onnx_gate.report.story.summary import MARKS
from onnx_gate.text import plain, visible

_COLUMNS = (
    *("Model", "Verdict", "Checks", "Worst case"),
    *("Error", "Allowed", "Of tolerance", "Seconds"),
)
# Notebooks neither wrap lines nor break words by themselves, and are of any width.
_UNWRAPPED = 10_000
_WRONG = Markup('<pre style="white-space:pre-wrap;overflow-wrap:anywhere">{}</pre>')
_CELL = Markup('<td style="overflow-wrap:break-word">{}</td>')
_PAGE = Markup(
    "<details{}><summary>the whole report</summary>"
    '<iframe sandbox srcdoc="{}" style="width:100%;height:30rem;border:1px solid #8884"></iframe>'
    "</details>"
)


def render(report: Report) -> str:
    """Return a fragment of HTML without scripts.

    A viewer that strips frames, as GitHub's does, still shows everything but the details.
    """
    run = tell(report)
    wrong_at_all = report.verdict != "pass"
    wrong = terminal.render(report, detail=terminal.QUIET, width=_UNWRAPPED).strip("\n")
    shown = "\n".join(visible(line) for line in wrong.splitlines())
    return Markup("").join(
        (
            Markup("<p><b>{} {}</b></p>").format(MARKS[report.verdict], plain(run.headline)),
            Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
                Markup("").join(Markup("<th>{}</th>").format(name) for name in _COLUMNS),
                Markup("").join(map(_row, run.ordered)),
            ),
            _WRONG.format(shown) if wrong_at_all else Markup(""),
            _PAGE.format(Markup(" open") if wrong_at_all else "", html.render(report)),
        )
    )


def _row(story: Story) -> Markup:
    worst = story.worst
    cells = [story.model.name, story.model.verdict, str(story.counted)]
    cells += [worst.check.case, worst.error, worst.allowed, worst.used] if worst else [""] * 4
    cells.append(story.seconds)
    shown = Markup("").join(_CELL.format(plain(cell)) for cell in cells)
    return Markup("<tr>{}</tr>").format(shown)
