"""A GitHub of one repository on 127.0.0.1, which keeps state, can fail, and checks both sides.

Every request and every answer is checked against GitHub's OpenAPI description; what does not fit
is in ``violations``, and leaving the context manager asserts that there is nothing.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tests.support.github.description import describe
from tests.support.github.handlers import (
    KINDS,
    ApiHandler,
    Download,
    Fault,
    Request,
    Server,
    StoreHandler,
)
from tests.support.github.state import (
    BASE,
    HEAD,
    REPOSITORY,
    Artifact,
    Comment,
    Pull,
    Reply,
    Run,
    State,
    refuse,
    user,
    zip_of,
)

TOKEN = "ghs_NotAToken0123456789abcdefghijklmnop"
BOT = "github-actions[bot]"
NUMBER = 7


class GitHub:
    """The server, from entering to leaving the context.

    ``url`` is the base of the API (with ``/api/v3`` for ``enterprise``). The token's user is
    ``login``; for a bot ``GET /user`` is refused, as it is on GitHub. Pull request number 7 from
    the repository's own branch is there from the start.
    """

    def __init__(
        self,
        *,
        enterprise: bool = False,
        login: str = BOT,
        token: str = TOKEN,
        repository: str = REPOSITORY,
        strict: bool = True,
    ) -> None:
        self.description = describe("ghes-3.19" if enterprise else "api.github.com")
        self.state = State(repository)
        self.repository = repository
        self.tokens = {token: login}
        self.requests: list[Request] = []
        self.downloads: list[Download] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.stopping = threading.Event()
        self.sleep: Callable[[float], None] = time.sleep
        # Seconds before and after a request is carried out; called with method and path.
        self.latency: Callable[[str, str], tuple[float, float]] = lambda method, path: (0, 0)
        self.links: Callable[[str], str] = lambda url: url
        self.redirect: str | None = None
        self._strict = strict
        self._api = Server(self, ApiHandler)
        self._store = Server(self, StoreHandler)
        self.url = f"http://127.0.0.1:{self._api.server_address[1]}{self.description.prefix}"
        # By another name, so that it is another host.
        self.store_url = f"http://localhost:{self._store.server_address[1]}"
        self.add_pull(NUMBER)

    def __enter__(self) -> GitHub:
        for server in (self._api, self._store):
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        for server in (self._api, self._store):
            server.shutdown()
            server.server_close()
        if self._strict and error is None:
            assert not self.violations, "\n".join(self.violations)

    @property
    def comments(self) -> list[Comment]:
        with self.state.lock:
            return list(self.state.comments)

    @property
    def login(self) -> str:
        return next(iter(self.tokens.values()))

    def add_comment(self, author: str, body: str, number: int = NUMBER) -> Comment:
        comment = Comment(self.state.next_id(), number, author, body)
        with self.state.lock:
            self.state.comments.append(comment)
        return comment

    def add_pull(
        self,
        number: int,
        head_sha: str = HEAD,
        head_ref: str = "faster-attention",
        head_repository: str | None = REPOSITORY,
        base_sha: str = BASE,
        base_ref: str = "main",
        base_repository: str = REPOSITORY,
        state: str = "open",
    ) -> Pull:
        pull = Pull(
            *(number, head_sha, head_ref, head_repository),
            *(base_sha, base_ref, base_repository, state),
        )
        self.state.pulls.append(pull)
        return pull

    def add_run(
        self,
        head_sha: str = BASE,
        head_branch: str | None = "main",
        head_repository: str = REPOSITORY,
        event: str = "push",
        conclusion: str | None = "success",
        workflow: str = "parity.yml",
        workflow_id: int = 55,
        status: str = "completed",
    ) -> Run:
        run = Run(
            self.state.next_id(),
            head_sha,
            head_branch,
            head_repository,
            event,
            status,
            conclusion,
            workflow,
            workflow_id,
        )
        self.state.runs.append(run)
        return run

    def add_fork_run(self, artifact: bytes | None = None) -> dict[str, Any]:
        """Let pull request 8 of a fork have failed; return the event that its end starts.

        ``artifact`` is the text of the ``report.json`` that the run has left.
        """
        fork, sha = "stranger/models", "a" * 40
        self.add_pull(8, head_sha=sha, head_ref="patch", head_repository=fork)
        run = self.add_run(sha, "patch", fork, event="pull_request", conclusion="failure")
        if artifact is not None:
            self.add_artifact(run.id, {"report.json": artifact})
        return {
            "action": "completed",
            "workflow_run": {
                "id": run.id,
                "run_attempt": 1,
                "head_sha": sha,
                "head_branch": run.head_branch,
                "head_repository": {"full_name": fork},
                "event": run.event,
                "conclusion": run.conclusion,
                "workflow_id": run.workflow_id,
                "pull_requests": [],
            },
        }

    def add_artifact(
        self,
        run: int,
        files: Mapping[str, bytes] | bytes,
        name: str = "onnx-gate-report",
        expired: bool = False,
    ) -> Artifact:
        data = files if isinstance(files, bytes) else zip_of(files)
        artifact = Artifact(self.state.next_id(), run, name, data, expired)
        self.state.artifacts.append(artifact)
        return artifact

    def add_file(self, path: str, ref: str, data: bytes) -> None:
        self.state.files[path, ref] = data

    def fail(
        self, method: str, pattern: str, times: int = 1, kind: str = "500", seconds: float = 1
    ) -> None:
        """Let the next ``times`` requests fail; ``pattern`` is searched for in the path."""
        assert kind in KINDS, kind
        self.faults.append(Fault(method, pattern, times, kind, seconds))

    def counted(self) -> list[str]:
        """Return the requests so far as ``METHOD last-part-of-path``."""
        return [f"{r.method} {urlsplit(r.path).path.rpartition('/')[2]}" for r in self.requests]

    def fault(self, method: str, path: str) -> Fault | None:
        with self.state.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.pattern, path):
                    fault.times -= 1
                    return fault
        return None

    def carry_out(self, method: str, target: str, author: str, body: Any) -> Reply:
        """Do what a request asks for, and check it and its answer."""
        parts = urlsplit(target)
        path = parts.path.removeprefix(self.description.prefix)
        path = path.replace("/repositories/1296269/", f"/repos/{self.repository}/")
        operation = self.description.find(method, path)
        if operation is None:
            self.violations.append(f"{method} {target}: no operation that onnx-gate uses")
            return refuse(404, "Not Found")
        problems = list(self.description.check_request(operation, parts.query, body))
        if problems:
            self.violations += [f"{method} {target}: {problem}" for problem in problems]
            return refuse(422, "Validation Failed")
        arguments = {name: unquote(value) for name, value in operation.arguments.items()}
        query = dict(parse_qsl(parts.query))
        with self.state.lock:
            reply = self._operate(operation.template, method, arguments, query, author, body)
        reply = self._page(reply, target, query)
        answer = self.description.complete(operation, reply.status, reply.body)
        for problem in self.description.check_answer(operation, reply.status, answer):
            # For a fork that has been deleted, and for the line of a comment that no diff shows any
            # more, GitHub answers null, whatever it describes.
            if not re.search(r"(head\.repo|\.line): None is not", problem):
                self.violations.append(f"{method} {target}: {problem}")
        return Reply(reply.status, answer, headers=reply.headers)

    def _operate(
        self,
        template: str,
        method: str,
        arguments: Mapping[str, str],
        query: Mapping[str, str],
        author: str,
        body: Any,
    ) -> Reply:
        state = self.state
        if "owner" in arguments:
            name = f"{arguments['owner']}/{arguments['repo']}"
            if name.lower() != self.repository.lower():
                return refuse(404, "Not Found")
        operations: dict[tuple[str, str], Callable[[], Reply]] = {
            ("GET", "/user"): lambda: self._user(author),
            ("GET", "/issues/{issue_number}/comments"): lambda: state.list_comments(
                int(arguments["issue_number"])
            ),
            ("POST", "/issues/{issue_number}/comments"): lambda: state.create_comment(
                int(arguments["issue_number"]), author, body["body"]
            ),
            ("PATCH", "/issues/comments/{comment_id}"): lambda: state.update_comment(
                int(arguments["comment_id"]), body["body"]
            ),
            ("DELETE", "/issues/comments/{comment_id}"): lambda: state.delete_comment(
                int(arguments["comment_id"])
            ),
            ("GET", "/commits/{commit_sha}/pulls"): lambda: state.commit_pulls(
                arguments["commit_sha"]
            ),
            ("GET", "/pulls/{pull_number}/files"): state.list_files,
            ("GET", "/pulls/{pull_number}/comments"): state.list_reviews,
            ("POST", "/pulls/{pull_number}/comments"): lambda: state.create_review(
                int(arguments["pull_number"]), author, body
            ),
            ("DELETE", "/pulls/comments/{comment_id}"): lambda: state.delete_review(
                int(arguments["comment_id"])
            ),
            ("GET", "/pulls"): lambda: state.list_pulls(query),
            ("GET", "/pulls/{pull_number}"): lambda: state.pull(int(arguments["pull_number"])),
            ("GET", "/actions/runs/{run_id}"): lambda: state.run(int(arguments["run_id"])),
            ("GET", "/actions/runs/{run_id}/artifacts"): lambda: state.list_artifacts(
                int(arguments["run_id"]), query
            ),
            ("GET", "/actions/artifacts/{artifact_id}/{archive_format}"): lambda: self._zip(
                int(arguments["artifact_id"])
            ),
            ("GET", "/actions/workflows/{workflow_id}/runs"): lambda: state.list_runs(
                arguments["workflow_id"], query
            ),
            ("GET", "/contents/{path}"): lambda: state.content(
                arguments["path"], query.get("ref", "main")
            ),
        }
        return operations[method, template.removeprefix("/repos/{owner}/{repo}")]()

    def _user(self, login: str) -> Reply:
        if login.endswith("[bot]"):
            return refuse(403, "Resource not accessible by integration")
        return Reply(200, {**user(login), "user_view_type": "private"})

    def _zip(self, artifact_id: int) -> Reply:
        for artifact in self.state.artifacts:
            if artifact.id == artifact_id:
                if artifact.expired:
                    return refuse(410, "Artifact has expired")
                url = self.redirect or f"{self.store_url}/{artifact_id}?sig=secret"
                return Reply(302, headers={"Location": url})
        return refuse(404, "Not Found")

    def _page(self, reply: Reply, target: str, query: Mapping[str, str]) -> Reply:
        if reply.items is None:
            return reply
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        shown = reply.items[(page - 1) * size : page * size]
        headers = dict(reply.headers)
        if len(reply.items) > page * size:
            # GitHub's own links name the repository by its number.
            path = urlsplit(target).path.removeprefix(self.description.prefix)
            path = path.replace(f"/repos/{self.repository}/", "/repositories/1296269/")
            following = urlencode({**query, "page": page + 1})
            address = self.links(f"{self.url}{path}?{following}")
            headers["Link"] = f'<{address}>; rel="next", <{address}>; rel="last"'
        body: Any = shown
        if reply.key is not None:
            body = {"total_count": len(reply.items), reply.key: shown}
        return Reply(reply.status, body, headers=headers)
