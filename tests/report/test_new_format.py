"""A format that nobody has written yet takes what the story says, and decides nothing."""

from __future__ import annotations

import ast
import csv
import inspect
import io

from onnx_gate.report.model import Report
from onnx_gate.report.render import html, terminal
from onnx_gate.report.story.explained import explain
from onnx_gate.report.story.story import tell
from tests.support.report.scenes import SCENES


def render(report: Report) -> str:
    """A sheet with a line for each check that fails a model, and why below each model."""
    run, file = tell(report), io.StringIO()
    sheet = csv.writer(file)
    sheet.writerow([run.headline, run.sentence])
    for story in run.ordered:
        sheet.writerow([story.model.name, story.verdict, story.outcome, story.place])
        for row in story.failing:
            cells = (row.error, row.allowed, row.used, row.expected, row.actual, row.at)
            sheet.writerow([row.check.case, row.check.output, *cells])
    for story in run.failing:
        sheet.writerows([line] for line in explain(story, run))
    return file.getvalue()


DECISIONS = (ast.If, ast.IfExp, ast.BoolOp, ast.Compare, ast.Match, ast.Try)


def test_a_format_is_short_and_decides_nothing() -> None:
    source = inspect.getsource(render)
    assert len(source.splitlines()) <= 40
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, DECISIONS)]
    assert found == []


def test_it_says_what_the_others_say() -> None:
    report = SCENES["diverged"][0]()
    rows = list(csv.reader(io.StringIO(render(report))))
    run = tell(report)
    shown = terminal.render(report)
    assert rows[0][0] == run.headline
    assert len(run.failing) == 4
    page = html.render(report)
    for story in run.failing:
        line = next(row for row in rows if row[0] == story.model.name)
        assert line[1] in shown
        assert line[3] in page
        assert [f"again: {story.again}"] in rows
        assert story.again in shown
        for row in story.failing[:1]:
            mine = next(each for each in rows if each[0] == row.check.case)
            assert mine[2] in page
