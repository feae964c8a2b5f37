"""Remedies at their lines: inside the diff, of the head's own text, each once, none of a stranger's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.gate.remedies import line_edits
from onnx_gate.github.header import Header
from onnx_gate.github.run_context import PullRequest
from onnx_gate.github.suggestions import (
    MOST,
    Suggestion,
    suggestions_of,
    sync_suggestions,
)
from onnx_gate.report.model import Report
from onnx_gate.report.model.remedy import LineEdit, Remedies, Remedy
from tests.support.github.clients import client_for, header
from tests.support.github.server import BASE, BOT, HEAD, NUMBER, GitHub
from tests.support.report.reports import report

PATH = "models/size.py"
LINES = ["import torch", "", "def forward(x):", "    n = int(x.shape[0])", "    return x / n", ""]
PATCH = "@@ -1,2 +1,3 @@\n import torch\n+\n def forward(x):\n@@ -9,0 +4,2 @@ def\n+a\n+b"
TARGET = PullRequest(NUMBER, HEAD, BASE, "main", fork=False)
SIZE = LineEdit(file="size.py", line=4, old=(LINES[3],), new=("    n = x.shape[0]",))


def red(*remedies: tuple[LineEdit, ...]) -> Report:
    """Return a report of red models, each with a remedy of such edits that holds."""
    plain = report()
    first = plain.models[0]
    models = []
    for number, edits in enumerate(remedies):
        held = Remedy(kind="source", rewrite="size", edits=edits, patch="p", files={}, compared=3)
        update = {"name": f"m{number}", "remedies": Remedies(held=(held,), tried=1)}
        models.append(first.model_copy(update=update))
    return plain.model_copy(update={"models": tuple(models)})


def sync(github: GitHub, told: Report, head: Header | None = None) -> int:
    client, remedies = client_for(github), suggestions_of(told, "models")
    return sync_suggestions(client, github.repository, TARGET, head or header(), remedies)


@pytest.fixture
def repository(github: GitHub) -> GitHub:
    github.add_file(PATH, HEAD, "\n".join(LINES).encode())
    github.state.patches[PATH] = PATCH
    return github


def test_a_remedy_stands_at_its_line_once_and_goes_with_it(repository: GitHub) -> None:
    assert sync(repository, red((SIZE,))) == 1
    (comment,) = repository.state.reviews
    assert (comment.path, comment.start, comment.line) == (PATH, None, 4)
    assert comment.body.partition("\n")[2].endswith(
        ", and leaves 3 answers of PyTorch as they were but for rounding.\n\n"
        "```suggestion\n    n = x.shape[0]\n```"
    )
    assert sync(repository, red((SIZE,)), header(101)) == 1
    assert repository.state.reviews == [comment]
    comment.line = None  # GitHub's word for a line that has changed since
    assert sync(repository, red((SIZE,)), header(102)) == 1
    assert [each.line for each in repository.state.reviews] == [4]
    assert sync(repository, report(), header(103)) == 0
    assert repository.state.reviews == []


def test_a_newer_run_a_stranger_and_another_gate_are_left_alone(repository: GitHub) -> None:
    sync(repository, red((SIZE,)), header(200))
    assert sync(repository, report(), header(100)) == 0
    sync(repository, red((SIZE,)), header(100, workflow="other.yml"))
    theirs = repository.state.create_review(
        NUMBER,
        "mallory",
        {"body": f"{header(1).line()}\nmine", "commit_id": HEAD, "path": PATH, "line": 4},
    )
    assert theirs.status == 201
    assert sync(repository, report(), header(201)) == 0
    assert [each.author for each in repository.state.reviews] == [BOT, "mallory"]


@pytest.mark.parametrize(
    "edits",
    [
        (LineEdit(file="size.py", line=4, old=("    n = int(x.shape[1])",), new=("",)),),
        (LineEdit(file="other.py", line=4, old=(LINES[3],), new=("",)),),
        (LineEdit(file="../size.py", line=4, old=(LINES[3],), new=("",)),),
        (SIZE, LineEdit(file="size.py", line=1, old=("import os",), new=("",))),
        (LineEdit(file="size.py", line=3, old=tuple(LINES[2:4]), new=("",)),),
        (LineEdit(file="size.py", line=6, old=("",), new=("x",)),),
        (LineEdit(file="size.py", line=4, old=("    n = int(x.shape[0])\r",), new=("\r",)),),
        (LineEdit(file="size.py", line=4, old=(LINES[3],), new=("x",) * 50),),
    ],
    ids=[
        *("another text", "a file outside of the diff", "a folder above", "one line of two"),
        *("over two hunks", "beyond the diff", "carriage returns", "too long"),
    ],
)
def test_what_does_not_fit_is_not_suggested(
    repository: GitHub, edits: tuple[LineEdit, ...]
) -> None:
    repository.add_file("models/other.py", HEAD, "\n".join(LINES).encode())
    assert sync(repository, red(edits)) == 0
    assert repository.state.reviews == []


def test_a_line_that_the_merge_has_moved_is_found(repository: GitHub) -> None:
    moved = SIZE.model_copy(update={"line": 40})
    assert sync(repository, red((moved,))) == 1
    assert repository.state.reviews[0].line == 4
    twice = [*LINES, LINES[3]]
    repository.add_file(PATH, HEAD, "\n".join(twice).encode())
    assert sync(repository, red((moved,)), header(101)) == 0


def test_many_are_cut_whole_remedies_at_a_time(repository: GitHub) -> None:
    lines = [f"    n = {n}" for n in range(40)]
    repository.add_file(PATH, HEAD, "\n".join(lines).encode())
    repository.state.patches[PATH] = "@@ -0,0 +1,40 @@\n" + "\n".join(f"+{line}" for line in lines)
    edits = [
        LineEdit(file="size.py", line=n + 1, old=(line,), new=(f"{n}",))
        for n, line in enumerate(lines)
    ]
    pairs = [(edits[n], edits[n + 1]) for n in range(0, 16, 2)]
    assert sync(repository, red(*pairs)) == MOST
    assert {each.line for each in repository.state.reviews} == set(range(1, MOST + 1))


@given(st.lists(st.text(alphabet="`ab <!->@\n"), min_size=1, max_size=4))
def test_nothing_ends_the_fence(new: list[str]) -> None:
    lines = tuple(line for text in new for line in text.split("\n"))
    body = Suggestion(PATH, 1, ("a",), lines, "why").body
    head, _, rest = body.partition("suggestion\n")
    marks = head.rpartition("\n")[2]
    assert set(marks) == {"`"}
    assert rest.split("\n")[:-1] == list(lines)
    assert rest.split("\n")[-1] == marks
    assert all(marks not in line for line in lines)


@given(*[st.lists(st.sampled_from("abc")).map(lambda lines: [*lines, ""])] * 2)
def test_edits_have_lines_to_stand_at(before: list[str], after: list[str]) -> None:
    old, new = "\n".join(before), "\n".join(after)
    lines = old.split("\n")
    for edit in reversed(line_edits("f", old, new)):
        first = edit.line - 1
        assert edit.old
        # What comes after the last newline is no line.
        assert old == "" or first < len(old.splitlines())
        assert tuple(lines[first : first + len(edit.old)]) == edit.old
        lines[first : first + len(edit.old)] = edit.new
    assert "\n".join(lines) == new
