"""What the test server knows: plain records, and the operations of the API on them."""

from __future__ import annotations

import base64
import io
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REPOSITORY = "octo/models"
HEAD = "9b7d0c1e" * 5
BASE = "4f1c2e90" * 5
PULL = {
    "number": 7,
    "head": {"sha": HEAD, "ref": "faster", "repo": {"full_name": REPOSITORY}},
    "base": {"sha": BASE, "ref": "main", "repo": {"full_name": REPOSITORY}},
}
MAX_BODY = 65_536


@dataclass
class Comment:
    id: int
    number: int
    author: str
    body: str


@dataclass
class ReviewComment(Comment):
    """Lines ``start`` to ``line`` of the head's ``path``; ``line`` is null where it is outdated."""

    path: str
    start: int | None
    line: int | None


@dataclass
class Pull:
    number: int
    head_sha: str
    head_ref: str
    head_repository: str | None
    base_sha: str
    base_ref: str
    base_repository: str
    state: str


@dataclass
class Run:
    id: int
    head_sha: str
    head_branch: str | None
    head_repository: str
    event: str
    status: str
    conclusion: str | None
    workflow: str
    workflow_id: int


@dataclass
class Artifact:
    id: int
    run: int
    name: str
    data: bytes
    expired: bool


@dataclass(frozen=True)
class Reply:
    """An answer before it is completed: ``items`` of a list are paged under ``key``."""

    status: int
    body: Any = None
    items: list[Any] | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class State:
    """One repository of one GitHub; every method of an operation is called under ``lock``."""

    def __init__(self, repository: str) -> None:
        self.repository = repository
        self.lock = threading.RLock()
        self.comments: list[Comment] = []
        self.reviews: list[ReviewComment] = []
        self.patches: dict[str, str] = {}
        self.pulls: list[Pull] = []
        self.runs: list[Run] = []
        self.artifacts: list[Artifact] = []
        self.files: dict[tuple[str, str], bytes] = {}
        self.filters = True
        self.last_run = 10**9
        self._ids = 1000

    def next_id(self) -> int:
        with self.lock:
            self._ids += 1
            return self._ids

    def list_comments(self, number: int) -> Reply:
        if not any(pull.number == number for pull in self.pulls):
            return refuse(404, "Not Found")
        found = sorted((c for c in self.comments if c.number == number), key=lambda c: c.id)
        return Reply(200, items=[self._comment(c) for c in found])

    def create_comment(self, number: int, author: str, body: str) -> Reply:
        if not any(pull.number == number for pull in self.pulls):
            return refuse(404, "Not Found")
        if len(body) > MAX_BODY:
            return _too_long()
        comment = Comment(self.next_id(), number, author, body)
        self.comments.append(comment)
        return Reply(201, self._comment(comment))

    def update_comment(self, comment_id: int, body: str) -> Reply:
        for comment in self.comments:
            if comment.id == comment_id:
                if len(body) > MAX_BODY:
                    return _too_long()
                comment.body = body
                return Reply(200, self._comment(comment))
        return refuse(404, "Not Found")

    def delete_comment(self, comment_id: int) -> Reply:
        for comment in self.comments:
            if comment.id == comment_id:
                self.comments.remove(comment)
                return Reply(204)
        return refuse(404, "Not Found")

    def list_files(self) -> Reply:
        return Reply(
            200,
            items=[
                {"filename": path, "status": "modified", "patch": patch}
                for path, patch in self.patches.items()
            ],
        )

    def list_reviews(self) -> Reply:
        return Reply(200, items=[self._review(each) for each in self.reviews])

    def create_review(self, number: int, author: str, body: Mapping[str, Any]) -> Reply:
        heads = [pull.head_sha for pull in self.pulls if pull.number == number]
        start = body.get("start_line", body["line"])
        # GitHub refuses what no hunk shows.
        if body["commit_id"] not in heads or not self._shows(body["path"], start, body["line"]):
            return refuse(422, "Validation Failed")
        comment = ReviewComment(
            *(self.next_id(), number, author, body["body"]),
            *(body["path"], body.get("start_line"), body["line"]),
        )
        self.reviews.append(comment)
        return Reply(201, self._review(comment))

    def delete_review(self, comment_id: int) -> Reply:
        self.reviews = [each for each in self.reviews if each.id != comment_id]
        return Reply(204)

    def _shows(self, path: str, first: int, last: int) -> bool:
        """Return whether one hunk of a file's diff has both lines on the head's side."""
        hunks: list[list[int]] = []
        number = 0
        for line in self.patches.get(path, "").splitlines():
            if line.startswith("@@"):
                number = int(line.split("+")[1].split(" ")[0].split(",")[0])
                hunks.append([])
            elif not line.startswith("-"):
                hunks[-1].append(number)
                number += 1
        return any(first in hunk and last in hunk for hunk in hunks)

    def _review(self, comment: ReviewComment) -> dict[str, Any]:
        own = {"path": comment.path, "start_line": comment.start, "line": comment.line}
        return {"id": comment.id, "body": comment.body, "user": user(comment.author), **own}

    def pull(self, number: int) -> Reply:
        for pull in self.pulls:
            if pull.number == number:
                return Reply(200, self._pull(pull))
        return refuse(404, "Not Found")

    def commit_pulls(self, sha: str) -> Reply:
        found = [pull for pull in self.pulls if pull.head_sha == sha or not self.filters]
        return Reply(200, items=[self._pull(pull) for pull in found])

    def list_pulls(self, query: Mapping[str, str]) -> Reply:
        head, state = query.get("head"), query.get("state", "open")
        found = []
        for pull in self.pulls:
            owner = (pull.head_repository or "").partition("/")[0]
            if head not in (None, f"{owner}:{pull.head_ref}") and self.filters:
                continue
            if state in ("all", pull.state) or not self.filters:
                found.append(self._pull(pull))
        return Reply(200, items=found)

    def run(self, run_id: int) -> Reply:
        """A run by its id: runs are numbered in order, so that every id up to the last has one."""
        for run in self.runs:
            if run.id == run_id:
                return Reply(200, self._run(run))
        if run_id > self.last_run:
            return refuse(404, "Not Found")
        other = Run(run_id, HEAD, "x", self.repository, "push", "completed", "success", "o.yml", 9)
        return Reply(200, {**self._run(other), "run_attempt": 9})

    def list_artifacts(self, run: int, query: Mapping[str, str]) -> Reply:
        if not any(known.id == run for known in self.runs):
            return refuse(404, "Not Found")
        name = query.get("name")
        found = [
            {
                "id": artifact.id,
                "name": artifact.name,
                "size_in_bytes": len(artifact.data),
                "expired": artifact.expired,
            }
            for artifact in reversed(self.artifacts)
            if artifact.run == run and name in (None, artifact.name)
        ]
        return Reply(200, items=found, key="artifacts")

    def list_runs(self, workflow: str, query: Mapping[str, str]) -> Reply:
        known = [run for run in self.runs if workflow in (run.workflow, str(run.workflow_id))]
        if not known:
            return refuse(404, "Not Found")
        found = []
        for run in sorted(known, key=lambda run: -run.id):
            matches = (
                query.get("branch") in (None, run.head_branch)
                and query.get("event") in (None, run.event)
                and query.get("status") in (None, run.status, run.conclusion)
            )
            if matches or not self.filters:
                found.append(self._run(run))
        return Reply(200, items=found, key="workflow_runs")

    def content(self, path: str, ref: str) -> Reply:
        data = self.files.get((path, ref))
        if data is not None:
            small = len(data) <= 1_000_000
            return Reply(
                200,
                {
                    "type": "file",
                    "encoding": "base64" if small else "none",
                    "size": len(data),
                    "name": path.rpartition("/")[2],
                    "path": path,
                    "content": base64.encodebytes(data).decode() if small else "",
                },
            )
        inside = sorted(p for p, r in self.files if r == ref and p.startswith(f"{path}/"))
        if inside:
            return Reply(200, [{"type": "file", "path": name, "size": 0} for name in inside])
        return refuse(404, "Not Found")

    def _comment(self, comment: Comment) -> dict[str, Any]:
        page = f"https://example.test/{self.repository}/pull/{comment.number}"
        return {
            "id": comment.id,
            "body": comment.body,
            "user": user(comment.author),
            "html_url": f"{page}#issuecomment-{comment.id}",
        }

    def _pull(self, pull: Pull) -> dict[str, Any]:
        head = pull.head_repository
        return {
            "number": pull.number,
            "state": pull.state,
            "head": {
                "sha": pull.head_sha,
                "ref": pull.head_ref,
                "label": pull.head_ref,
                "repo": repository(head) if head else None,
                "user": user((head or "ghost/gone").partition("/")[0]),
            },
            "base": {
                "sha": pull.base_sha,
                "ref": pull.base_ref,
                "label": pull.base_ref,
                "repo": repository(pull.base_repository),
                "user": user(pull.base_repository.partition("/")[0]),
            },
        }

    def _run(self, run: Run) -> dict[str, Any]:
        return {
            "id": run.id,
            "head_sha": run.head_sha,
            "head_branch": run.head_branch,
            "event": run.event,
            "status": run.status,
            "conclusion": run.conclusion,
            "workflow_id": run.workflow_id,
            "run_attempt": 1,
            "pull_requests": [],
            "repository": repository(self.repository),
            "head_repository": repository(run.head_repository),
        }


def user(login: str) -> dict[str, Any]:
    return {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}


def repository(name: str) -> dict[str, Any]:
    owner, _, short = name.partition("/")
    return {"name": short, "full_name": name, "owner": user(owner)}


def refuse(status: int, message: str, **headers: str) -> Reply:
    body = {"message": message, "documentation_url": "https://docs.github.com/rest"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, body, headers=named)


def zip_of(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def _too_long() -> Reply:
    return Reply(
        422,
        {
            "message": "Validation Failed",
            "errors": [{"resource": "IssueComment", "code": "unprocessable", "field": "data"}],
            "documentation_url": "https://docs.github.com/rest",
        },
    )
