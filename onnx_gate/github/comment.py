"""One comment on a pull request for each gate, whoever else writes at the same time.

GitHub cannot write on a condition. So every write is followed by a look at what stands, and the
header in a comment's first line says which of two writers has the newer result. The comment with
the lowest id is the one that stays, because every writer can tell which one that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.client import Client
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.github.header import Header, parse
from onnx_gate.github.own import NEEDS, OwnComment, author_of, delete_comment, normal, own_comments
from onnx_gate.github.run_context import is_repository, is_sha

__all__ = ["Action", "CommentResult", "Header", "parse", "sync_comment"]

Action = Literal["created", "updated", "unchanged", "deleted", "superseded", "none"]

_ROUNDS = 3
_PASSING = ("rate", "server", "unreachable")


@dataclass(frozen=True)
class CommentResult:
    """What became of the comment; ``url`` is the page of the one that stands, if any."""

    action: Action
    url: str | None
    message: str


def sync_comment(
    client: Client,
    repository: str,
    number: int,
    header: Header,
    body: str,
    policy: CommentPolicy,
    wrong: bool,
    *,
    pause: float = 1.0,
) -> CommentResult:
    """Bring the comment of the header's gate on pull request ``number`` in line with a result.

    ``body`` is Markdown without the header's line, ``wrong`` says whether it reports a problem.
    ``changes`` writes where something is wrong or a comment stands, ``on-failure`` writes where
    something is wrong and else deletes. What replaced another comment is looked at again after
    ``pause`` seconds. Never overwrites a newer run's comment. Raises ``GitHubError``; its kind is
    ``invalid`` where GitHub takes the body to be too long.
    """
    if policy == "never":
        return CommentResult("none", None, "comments are switched off")
    if not is_repository(repository):
        raise ValueError(f"not owner/name: {repository!r}")
    sync = _Sync(client, repository, number, header, f"{header.line()}\n{body}", pause)
    if policy == "on-failure" and not wrong:
        return sync.remove()
    return sync.put(create=wrong or policy == "always")


class _Sync:
    """One publisher at work on one comment."""

    def __init__(
        self, client: Client, repository: str, number: int, header: Header, text: str, pause: float
    ) -> None:
        self.client = client
        self.repository = repository
        self.number = number
        self.header = header
        self.text = text
        self.pause = pause
        self.author: str | None = None
        self.known: dict[tuple[int, int], bool] = {}
        self.written = False
        self.troubles = 0
        self.rounds = 0
        self.error: GitHubError | None = None

    def put(self, create: bool) -> CommentResult:
        """Make the newest content stand in one comment."""
        own = self.own()
        if not own and not create:
            return CommentResult("none", None, "nothing is wrong and no comment stands")
        action: Action = "unchanged"
        recheck = False
        while True:
            if self.newer(own) is not None:
                return self.give_way(own)
            settled = len(own) == 1 and self.stands(own[0])
            if settled and not recheck:
                return _done(action, own[0].url)
            if not settled and self.rounds == _ROUNDS:
                return self.give_up(action, own)
            stood = bool(own) and self.stands(own[0])
            if stood and not settled:
                self.rounds += 1
            elif not stood:
                if not own and (head := self.head_elsewhere()):
                    text = f"superseded: the pull request has moved on to {head[:7]}"
                    return CommentResult("superseded", None, text)
                action = "updated" if own else "created"
                self.write(own[0] if own else None)
                # What replaced a comment may itself be replaced, by a slow older writer; and a
                # write without an answer may still be carried out.
                recheck = recheck or bool(own) or not self.written
            if stood or self.written:
                self.delete(own[1:])
            if recheck and (settled or self.written):
                self.client.pause(self.pause)
                recheck = False
            own = self.own()

    def remove(self) -> CommentResult:
        """Leave no comment of this or an older run."""
        deleted = False
        for _ in range(_ROUNDS):
            own = self.own()
            if self.newer(own) is not None:
                return self.give_way(own)
            if not own:
                break
            self.delete(own)
            deleted = True
            self.client.pause(self.pause)
        if deleted:
            return CommentResult("deleted", None, "nothing is wrong any more: comment deleted")
        return CommentResult("none", None, "nothing is wrong and no comment stands")

    def own(self) -> list[OwnComment]:
        """Return the comments of this gate by this token's user, the lowest id first."""
        return own_comments(self.client, f"{self._issue}/comments", self.header, self.author)

    def newer(self, own: list[OwnComment]) -> OwnComment | None:
        """Return the newest of the comments if it is newer than what is to be written.

        A header is text, and whoever gets this token to write may have made it up: one of a run
        that GitHub does not know would silence the comment for good.
        """
        for comment in sorted(own, key=lambda c: c.header.order, reverse=True):
            if comment.header.order <= self.header.order:
                return None
            if self.has_been(comment.header):
                return comment
        return None

    def has_been(self, header: Header) -> bool:
        """Return whether the run of a header exists; where the token may not ask, it is believed."""
        if header.order not in self.known:
            path = f"/repos/{self.repository}/actions/runs/{header.run}"
            try:
                run = self.client.get(path, needs="actions=read")
                attempt = run.get("run_attempt", 1) if isinstance(run, dict) else None
                self.known[header.order] = isinstance(attempt, int) and header.attempt <= attempt
            except GitHubError as error:
                if error.kind not in ("permission", "missing", "invalid"):
                    raise
                self.known[header.order] = error.kind == "permission"
        return self.known[header.order]

    def stands(self, comment: OwnComment) -> bool:
        """Return whether a comment has the content that is to be written."""
        if normal(comment.body) == normal(self.text):
            return True
        return self.written and comment.header.order == self.header.order

    def write(self, standing: OwnComment | None) -> None:
        """Write into a comment, or a new one; ``written`` says whether GitHub confirmed it."""
        self.written = False
        try:
            if standing is not None:
                path = f"/repos/{self.repository}/issues/comments/{standing.id}"
                self.client.write("PATCH", path, {"body": self.text}, NEEDS, once=True)
            else:
                path = f"{self._issue}/comments"
                answer = self.client.write("POST", path, {"body": self.text}, NEEDS, once=True)
                self.author = author_of(answer)[0] or self.author
            self.written = True
        except GitHubError as error:
            if error.kind in _PASSING:
                # Others may write during the wait, so that the next attempt looks again first.
                self.troubles += 1
                self.client.recover(error, self.troubles)
                return
            if standing is None or error.kind != "missing":
                raise
            self.error = error
        self.rounds += 1

    def delete(self, comments: list[OwnComment]) -> None:
        """Delete comments of this gate."""
        for comment in comments:
            delete_comment(self.client, f"/repos/{self.repository}/issues/comments/{comment.id}")

    def give_way(self, own: list[OwnComment]) -> CommentResult:
        """Leave the comment to a newer run, and nothing of this one beside it."""
        if own[0].header.order == self.header.order:
            # The newer run is about to write into this one, the lowest; it goes only if not.
            self.client.pause(self.pause)
            own = self.own()
        newer = self.newer(own)
        if newer is None:
            return CommentResult("superseded", None, "superseded: a newer run has commented")
        self.delete([c for c in own if c.header.order == self.header.order])
        text = f"superseded: run {newer.header.run}, attempt {newer.header.attempt}, is newer"
        return CommentResult("superseded", newer.url, text)

    def give_up(self, action: Action, own: list[OwnComment]) -> CommentResult:
        """End after the last round, with what stands then."""
        if self.error is not None and not self.written:
            raise self.error
        text = "written, but other writers of this comment-id keep changing it"
        return CommentResult(action, own[0].url if own else None, text)

    def head_elsewhere(self) -> str | None:
        """Return the pull request's head where it is not this result's commit any more.

        A newer run that had nothing to say has left no comment that could tell.
        """
        try:
            data = self.client.get(f"/repos/{self.repository}/pulls/{self.number}")
        except GitHubError as error:
            # A token for issues alone may comment and not see the pull request.
            if error.kind in ("permission", "missing"):
                return None
            raise
        head = data.get("head") if isinstance(data, dict) else None
        sha = head.get("sha") if isinstance(head, dict) else None
        if not isinstance(sha, str) or not is_sha(sha) or sha.startswith(self.header.sha):
            return None
        return sha

    @property
    def _issue(self) -> str:
        return f"/repos/{self.repository}/issues/{self.number}"


def _done(action: Action, url: str | None) -> CommentResult:
    text = "the comment is as it should be" if action == "unchanged" else f"comment {action}"
    return CommentResult(action, url, text)
