"""Remedies that held, as suggestions at their lines: GitHub puts one into the branch on a click.

A suggestion is a review comment. GitHub takes it inside of the diff alone, and what it would replace
has to be what the head has there: both are asked before, and what does not fit is left to the comment.
Of each run's suggestions those stand that still hold; another gate's, or a newer run's, are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from onnx_gate.errors import UserError
from onnx_gate.github.client import Client
from onnx_gate.github.contents import read_file
from onnx_gate.github.header import Header
from onnx_gate.github.own import NEEDS, delete_comment, normal, own_comments
from onnx_gate.github.run_context import PullRequest
from onnx_gate.report.model import Report
from onnx_gate.report.model.remedy import LineEdit
from onnx_gate.report.render.escape import code, fence_of, inline
from onnx_gate.report.story.remedied import TriedRemedy, tried

MOST = 10
"""Suggestions of one run, at most, as GitHub shows ten annotations of a level for each step.

Each is a notification to all who follow the pull request.
"""

# A rewrite changes a line, or a few of one function. What has more lines than a screen of the diff, or
# more characters than these lines at 100 each, is a patch to be read whole: the comment has it.
_MOST_LINES = 40
_MOST_CHARACTERS = 100 * _MOST_LINES
_HUNK = re.compile(r"^@@ -[0-9]+(?:,[0-9]+)? \+([0-9]+)(?:,([0-9]+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Suggestion:
    """Lines of a file in the repository, the first one's number from 1, and what to put there."""

    path: str
    line: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    sentence: str

    @property
    def last(self) -> int:
        """The number of the last line that is replaced."""
        return self.line + len(self.old) - 1

    @property
    def body(self) -> str:
        """The Markdown of the review comment, in a fence that nothing in it can end."""
        text = "".join(f"{line}\n" for line in self.new)
        marks = fence_of(text)
        return f"{self.sentence}\n\n{marks}suggestion\n{text}{marks}"


Remedy = tuple[Suggestion, ...]
"""The suggestions that go together."""


def suggestions_of(report: Report, folder: str) -> list[list[Remedy]]:
    """Return of each red model the remedies that are lines of text, the likeliest first.

    ``folder`` is the manifest's, relative to the repository, empty for its root.
    """
    return [
        [
            tuple(_suggestion(edit, f"{folder}/{edit.file}", model.name, told) for edit in edits)
            for held, told in zip(model.remedies.held, tried(model), strict=False)
            if (edits := held.edits) and all(map(_can_be_shown, edits))
        ]
        for model in report.models
        if model.remedies is not None
    ]


def _suggestion(edit: LineEdit, path: str, model: str, told: TriedRemedy) -> Suggestion:
    sentence = f"{code(model)}: {inline(told.sentence)}."
    return Suggestion(path.lstrip("/"), edit.line, edit.old, edit.new, sentence)


def sync_suggestions(
    client: Client,
    repository: str,
    target: PullRequest,
    header: Header,
    models: Sequence[Sequence[Remedy]],
) -> int:
    """Let the suggestions of the header's gate be those that hold now; return how many stand.

    Of each model it is the first remedy all of whose lines can be suggested. Raises ``GitHubError``.
    """
    path = f"/repos/{repository}/pulls/{target.number}/comments"
    standing = own_comments(client, path, header)
    if any(each.header.order > header.order for each in standing):
        return 0
    wanted: dict[tuple[str | None, int | None, str], Suggestion] = {}
    for together in _fitting(client, repository, target, models) if any(models) else ():
        if len(wanted) + len(together) <= MOST:
            wanted |= {(each.path, each.last, normal(each.body)): each for each in together}
    count = len(wanted)
    for comment in standing:
        if wanted.pop((comment.path, comment.line, comment.content), None) is None:
            delete_comment(client, f"/repos/{repository}/pulls/comments/{comment.id}")
    for each in wanted.values():
        where: dict[str, Any] = {"path": each.path, "line": each.last, "side": "RIGHT"}
        if each.last > each.line:
            where |= {"start_line": each.line, "start_side": "RIGHT"}
        body = {"body": f"{header.line()}\n{each.body}", "commit_id": target.head_sha}
        client.write("POST", path, {**body, **where}, NEEDS)
    return count


def _can_be_shown(edit: LineEdit) -> bool:
    lines = (*edit.old, *edit.new)
    # What GitHub does with the carriage returns of a suggestion is not written anywhere.
    plain = not any("\r" in line for line in lines)
    return plain and len(lines) <= _MOST_LINES and sum(map(len, lines)) <= _MOST_CHARACTERS


def _fitting(
    client: Client, repository: str, target: PullRequest, models: Sequence[Sequence[Remedy]]
) -> Iterator[list[Suggestion]]:
    """Yield of each model the first remedy whose lines stand in the head as here, and in the diff."""
    paths = {each.path for every in models for together in every for each in together}
    diff: dict[str, list[range]] = {}
    for page in client.pages(f"/repos/{repository}/pulls/{target.number}/files", needs=NEEDS):
        for item in page if isinstance(page, list) else ():
            if isinstance(item, dict) and item.get("filename") in paths:
                diff[item["filename"]] = _shown(str(item.get("patch") or ""))
    texts = {path: _text(client, repository, path, target.head_sha) for path in diff}

    def placed(remedy: Remedy) -> list[Suggestion]:
        found = [_placed(each, texts.get(each.path, ())) for each in remedy]
        return [
            each
            for each in found
            if each is not None
            and any(each.line in part and each.last in part for part in diff[each.path])
        ]

    for every in models:
        whole = (fits for remedy in every if len(fits := placed(remedy)) == len(remedy))
        yield from islice(whole, 1)


def _shown(patch: str) -> list[range]:
    """Return the lines of the new file that each hunk of a diff shows."""
    return [
        range(int(first), int(first) + int(count or 1)) for first, count in _HUNK.findall(patch)
    ]


def _text(client: Client, repository: str, path: str, sha: str) -> tuple[str, ...]:
    try:
        return tuple((read_file(client, repository, path, sha) or b"").decode().split("\n"))
    except (UserError, UnicodeDecodeError):
        return ()


def _placed(suggestion: Suggestion, lines: Sequence[str]) -> Suggestion | None:
    """Return a suggestion at its lines of the head: what was verified may be the head merged."""
    old, size = suggestion.old, len(suggestion.old)
    places = [n + 1 for n in range(len(lines)) if tuple(lines[n : n + size]) == old]
    if suggestion.line in places:
        return suggestion
    return replace(suggestion, line=places[0]) if size and len(places) == 1 else None
