"""Requests: what is repeated, what is waited for, what is refused, and where the token goes."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from onnx_gate.errors import UserError
from onnx_gate.github import transport
from onnx_gate.github.api_errors import GitHubError, refusal
from onnx_gate.github.artifacts import download_report
from onnx_gate.github.client import Client
from onnx_gate.github.contents import read_file
from tests.support.github.clients import Clock, client_for
from tests.support.github.handlers import ApiHandler
from tests.support.github.server import TOKEN, GitHub
from tests.support.github.state import BASE, Reply

COMMENTS = "/repos/octo/models/issues/7/comments"


def caught(call: Callable[[], Any]) -> GitHubError:
    with pytest.raises(GitHubError) as raised:
        call()
    return raised.value


@pytest.mark.parametrize("kind", ["500", "reset", "reset-after"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_what_can_be_repeated_is(github: GitHub, method: str, kind: str) -> None:
    comment = github.add_comment("ada", "text")
    path = COMMENTS if method == "GET" else f"/repos/octo/models/issues/comments/{comment.id}"
    github.fail(method, "comments", times=3, kind=kind)
    clock = Clock()
    client = client_for(github, clock)
    if method == "GET":
        assert len(client.get(path)) == 1
    elif kind != "reset-after" or method == "PATCH":
        client.write(method, path, {"body": "new"} if method == "PATCH" else None)
    else:
        assert caught(lambda: client.write(method, path)).kind == "missing"
        return
    assert clock.waits == [0.5, 1, 2]


def test_a_post_is_never_repeated_blindly(github: GitHub) -> None:
    for kind in ("500", "500-after", "reset", "reset-after"):
        github.fail("POST", "comments", kind=kind)
        error = caught(lambda: client_for(github).write("POST", COMMENTS, {"body": "text"}))
        assert error.kind == ("server" if kind.startswith("500") else "unreachable")
    assert sum(r.method == "POST" for r in github.requests) == 4


def test_all_calls_share_one_budget(github: GitHub) -> None:
    clock = Clock()
    client = client_for(github, clock, seconds=10)
    github.fail("GET", "comments", times=2, kind="429", seconds=4)
    assert client.get(COMMENTS) == []
    github.fail("GET", "comments", kind="429", seconds=2)
    error = caught(lambda: client.get(COMMENTS))
    assert (error.kind, error.wait, clock.waits) == ("rate", 2, [4, 4])
    clock.time = 11
    error = caught(lambda: client.get(COMMENTS))
    assert error.kind == "unreachable"
    assert "the 10 s for talking to GitHub are used up" in error.message
    assert len(github.requests) == 4
    client.budget.renew()  # models have run meanwhile
    assert client.get(COMMENTS) == []


def test_a_hanging_server_is_given_up(github: GitHub) -> None:
    github.fail("GET", "comments", times=9, kind="hang")
    clock = Clock()
    error = caught(lambda: client_for(github, clock, seconds=1, timeout=0.2).get(COMMENTS))
    assert (error.kind, error.status) == ("unreachable", None)
    assert "no answer in time" in error.message
    assert clock.waits == [0.5]


REFUSALS: list[tuple[int, dict[str, str], str, str, float | None]] = [
    # status, headers, message, kind, seconds to wait (at 1000 on the server's clock)
    (403, {}, "Resource not accessible by integration", "permission", None),
    (403, {"retry-after": "30"}, "whatever", "rate", 30),
    (403, {"retry-after": "0"}, "whatever", "rate", 1),
    (403, {"retry-after": "soon"}, "You have exceeded a secondary rate limit", "rate", 60),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1090"}, "API rate", "rate", 90),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, "API rate", "rate", 1),
    (403, {"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1090"}, "no", "permission", None),
    (
        403,
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1090"},
        "Resource not accessible by personal access token",
        "permission",
        None,
    ),
    (403, {}, "You have triggered an abuse detection mechanism", "rate", 60),
    (429, {}, "", "rate", 60),
    (401, {}, "Bad credentials", "credentials", None),
    (404, {}, "Not Found", "missing", None),
    (410, {}, "Gone", "missing", None),
    (422, {}, "Validation Failed", "invalid", None),
    (502, {}, "Server Error", "server", None),
    (304, {}, "", "invalid", None),
]


@pytest.mark.parametrize(("status", "headers", "message", "kind", "wait"), REFUSALS)
def test_what_a_refusal_means(
    status: int, headers: dict[str, str], message: str, kind: str, wait: float | None
) -> None:
    # The runner's own clock is an hour late.
    headers = {**headers, "date": "Thu, 01 Jan 1970 00:16:40 GMT"}
    error = refusal("GET /x", status, headers, f'{{"message": "{message}"}}', None, -2600)
    assert (error.kind, error.wait, error.status) == (kind, wait, status)
    assert message in error.message
    assert "\n" not in error.message


def test_the_lacking_permission_is_named(github: GitHub) -> None:
    github.fail("GET", "comments", times=2, kind="read-only")
    error = caught(lambda: client_for(github).get(COMMENTS, needs="issues=read"))
    assert error.permission == "issues=write; pull_requests=write"
    body = '{"message": "Resource not accessible by integration"}'
    assert refusal("GET /x", 403, {}, body, "issues=read", 0).permission == "issues=read"
    locked = '{"message": "Unable to create comment because issue is locked."}'
    assert refusal("POST /x", 403, {}, locked, "issues=write", 0).permission is None


def test_a_next_page_on_another_host_is_refused(github: GitHub) -> None:
    for number in range(101):
        github.add_comment("ada", str(number))
    with GitHub() as other:
        github.links = lambda url: url.replace(github.url, other.url)
        error = caught(lambda: list(client_for(github).pages(COMMENTS)))
        assert "another host" in error.message
        assert other.requests == []


def test_a_renamed_repository_is_followed_on_the_same_host_only(
    github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        github.add_comment("ada", str(number))
    real = github.carry_out
    target = github.url

    def moved(method: str, path: str, *rest: Any) -> Reply:
        if "/old/" not in path:
            return real(method, path, *rest)
        status = 301 if method == "GET" else 307
        return Reply(status, headers={"Location": target + path.replace("/old/", "/models/")})

    monkeypatch.setattr(github, "carry_out", moved)
    old = COMMENTS.replace("/models/", "/old/")
    assert len(client_for(github).get(old, {"per_page": 2, "page": 2})) == 1
    assert client_for(github).write("POST", old, {"body": "text"})["body"] == "text"
    with GitHub() as other:
        target = other.url
        assert "another host" in caught(lambda: client_for(github).get(old)).message
        assert other.requests == []


def test_too_large_an_answer_is_not_read(github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    github.add_comment("ada", "x" * 60_000)
    monkeypatch.setattr(transport, "MAX_JSON_BYTES", 50_000)
    error = caught(lambda: client_for(github).get(COMMENTS))
    assert (error.kind, "larger than" in error.message) == ("invalid", True)


def test_an_answer_that_is_no_json(github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github, "carry_out", lambda *_: Reply(200, None))
    assert "is not JSON" in caught(lambda: client_for(github).get(COMMENTS)).message


def test_requests_say_who_asks_in_which_version(
    github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}
    answer = ApiHandler._answer
    monkeypatch.setattr(
        ApiHandler, "_answer", lambda self, body: (seen.update(self.headers), answer(self, body))[1]
    )
    client_for(github).get(COMMENTS)
    assert seen["User-Agent"].startswith("onnx-gate/")
    assert seen["Accept"] == "application/vnd.github+json"
    assert seen["X-GitHub-Api-Version"] == "2022-11-28"


@pytest.mark.parametrize("token", ["", " ", "ghs_secret\n", "ghs_secret x", "ghs_sécret"])
def test_a_token_that_no_header_can_hold_is_not_quoted(token: str) -> None:
    with pytest.raises(UserError) as raised:
        Client(token, "http://127.0.0.1:9")
    assert "cret" not in str(raised.value)


def test_the_token_is_in_no_error_message_or_log(
    github: GitHub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    run = github.add_run()
    github.add_artifact(run.id, {"report.json": b"{}"})
    calls: list[Callable[[Client], Any]] = [
        lambda client: client.get(COMMENTS),
        lambda client: client.write("POST", COMMENTS, {"body": "text"}),
        lambda client: list(client.pages(COMMENTS)),
        lambda client: download_report(client, "octo/models", run.id),
        lambda client: read_file(client, "octo/models", "onnx-gate.yml", BASE),
    ]
    errors = [
        caught(lambda: client_for(GitHub(), seconds=1, timeout=0.1).get(COMMENTS)),
        caught(lambda: Client(TOKEN, "http://127.0.0.1:1", sleep=lambda _: None).get("/user")),
        caught(lambda: Client(TOKEN, "https://127.0.0.1:1", sleep=lambda _: None).get("/user")),
    ]
    for kind in ("500", "reset", "read-only", "primary"):
        for call in calls:
            for method in ("GET", "POST"):
                github.fail(method, "", times=99, kind=kind)
            errors.append(caught(lambda call=call: call(client_for(github))))
            github.faults.clear()
    real = github.carry_out
    monkeypatch.setattr(
        github, "carry_out", lambda *_: Reply(400, {"message": f"You sent {TOKEN}"})
    )
    errors += [caught(lambda call=call: call(client_for(github))) for call in calls]
    monkeypatch.setattr(github, "carry_out", real)
    assert "You sent ***" in errors[-1].message
    for error in errors:
        text = "".join(traceback.format_exception(error))
        assert TOKEN not in text + repr(error.__dict__) + repr(error.args)
        assert "\n" not in error.message
        # The libraries' exceptions hold the request with its headers.
        context: BaseException | None = error
        while context is not None:
            assert type(context).__module__.startswith("onnx_gate."), type(context)
            context = context.__cause__ or context.__context__
    assert caplog.records
    assert TOKEN not in caplog.text


def test_the_environments_proxy_is_asked_and_has_no_token_of_its_own(
    github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Proxy-Authorization")))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://ada:p%40ss@127.0.0.1:{proxy.server_port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert Client(TOKEN, "http://api.example.invalid").get("/user") == []
        assert client_for(github).get(COMMENTS) == []
        proxy.shutdown()
    assert asked == [("http://api.example.invalid/user", "Basic YWRhOnBAc3M=")]
