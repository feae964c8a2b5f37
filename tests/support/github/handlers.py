"""The HTTP side of the test server: requests, answers, and the ways in which they fail."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.github.state import Reply, refuse

if TYPE_CHECKING:
    from tests.support.github.server import GitHub

KINDS = (
    *("read-only", "429", "secondary", "primary", "500", "500-after"),
    *("hang", "hang-after", "reset", "reset-after", "slow", "slow-after"),
)


_LOST = ("hang-after", "reset-after")


@dataclass(frozen=True)
class Request:
    """A request as it came in, and the status it was answered with (0: not answered)."""

    method: str
    path: str
    body: Any
    status: int


@dataclass(frozen=True)
class Download:
    """A request to the store that artifacts are redirected to."""

    path: str
    authorization: str | None
    cookie: str | None


@dataclass
class Fault:
    """``times`` requests that match go wrong; see ``KINDS``."""

    method: str
    pattern: str
    times: int
    kind: str
    seconds: float


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, github: GitHub, handler: type[BaseHTTPRequestHandler]) -> None:
        self.github = github
        super().__init__(("127.0.0.1", 0), handler)

    def shutdown_request(self, request: Any) -> None:
        # No orderly end, so that a socket told to linger for no time sends a reset.
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    @property
    def github(self) -> GitHub:
        return self.server.github

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def reply(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class StoreHandler(_Handler):
    def do_GET(self) -> None:
        headers = (self.headers.get("Authorization"), self.headers.get("Cookie"))
        self.github.downloads.append(Download(self.path, *headers))
        fault = self.github.fault("STORE", self.path)
        if fault is not None and fault.kind == "reset":
            self.reset()
            return
        if fault is not None:
            self.reply(500, {}, b"")
            return
        wanted = urlsplit(self.path).path.strip("/")
        for artifact in self.github.state.artifacts:
            if str(artifact.id) == wanted:
                self.reply(200, {"Content-Type": "application/zip"}, artifact.data)
                return
        self.reply(404, {}, b"")


class ApiHandler(_Handler):
    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data) if data else None
        except ValueError:
            body = data.decode("latin-1")
        reply = self._answer(body)
        with self.github.state.lock:
            # Before the answer goes out, so that whoever has it finds the request recorded.
            status = reply.status if isinstance(reply, Reply) else 0
            self.github.requests.append(Request(self.command, self.path, body, status))
        if isinstance(reply, Reply):
            self._send(reply)
            return
        if reply == "hang":
            self.github.stopping.wait(60)
        self.reset()

    do_POST = do_PATCH = do_DELETE = do_PUT = do_GET

    def _answer(self, body: Any) -> Reply | str:
        """Return the answer, or how the connection ends without one."""
        github, method = self.github, self.command
        author = github.tokens.get((self.headers.get("Authorization") or "").partition(" ")[2])
        if author is None:
            return refuse(401, "Bad credentials")
        fault = github.fault(method, self.path) or Fault(method, "", 0, "", 0)
        if fault.kind in ("hang", "reset"):
            return fault.kind
        refusal = _refusal(fault)
        if refusal is not None:
            return refusal
        before, after = github.latency(method, self.path)
        self._sleep(before + (fault.seconds if fault.kind == "slow" else 0))
        if urlsplit(self.path).path.endswith("/graphql"):
            reply = Reply(200, {"data": {"viewer": {"login": author}}})
        else:
            reply = github.carry_out(method, self.path, author, body)
        self._sleep(after + (fault.seconds if fault.kind == "slow-after" else 0))
        if fault.kind == "500-after":
            return refuse(500, "Server Error")
        return fault.kind.removesuffix("-after") if fault.kind in _LOST else reply

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.github.sleep(seconds)

    def _send(self, reply: Reply) -> None:
        data = b"" if reply.body is None else json.dumps(reply.body).encode()
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "X-RateLimit-Remaining": "4999",
            **reply.headers,
        }
        self.reply(reply.status, headers, data)


def _refusal(fault: Fault) -> Reply | None:
    wait = str(int(fault.seconds))
    if fault.kind == "read-only":
        return refuse(
            403,
            "Resource not accessible by integration",
            X_Accepted_GitHub_Permissions="issues=write; pull_requests=write",
        )
    if fault.kind == "429":
        return refuse(429, "Too many requests", Retry_After=wait)
    if fault.kind == "secondary":
        return refuse(403, "You have exceeded a secondary rate limit. Please wait a few minutes.")
    if fault.kind == "primary":
        return refuse(
            403,
            "API rate limit exceeded for installation.",
            X_RateLimit_Remaining="0",
            X_RateLimit_Reset=str(int(time.time()) + 3600),
        )
    return refuse(500, "Server Error") if fault.kind == "500" else None
