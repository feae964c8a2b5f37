"""What a browser's pages load, and what they exchange with their sessions: HTTP on the loopback."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from onnx_gate_engines.web import frames
from onnx_gate_engines.web.chromium import Chromium
from onnx_gate_engines.web.package import find_package

_PART = 1 << 20
_SEND_SECONDS = 5.0
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
_PAGE = Path(__file__).with_name("page.js")
_HTML = b'<!doctype html><meta charset="utf-8"><script type="module" src="page.js"></script>'
_HEADERS = {
    # What threads of WebAssembly need: shared memory.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' blob: 'unsafe-eval'; worker-src 'self' blob:"
    ),
    "Cache-Control": "no-store",
}


@dataclass
class BrowserPage:
    """One session's page: ``job`` is what it is to load, ``files`` the model and what it points at.

    ``since`` is when it began what it is at, on the monotonic clock; ``None`` while it has nothing to do.
    """

    connection: socket.socket
    job: dict[str, Any]
    files: list[int]
    browser: Chromium | None = None
    target: str = ""
    since: float | None = None
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def seconds_on_gpu(self) -> float:
        """For how long it has used, or waited for, the browser's GPU process; 0 where it does not."""
        if self.since is None or self.job.get("provider") != "webgpu":
            return 0.0
        return time.monotonic() - self.since

    def fail(self, kind: str, message: str) -> None:
        """Tell the session why there will be no answer, and end it."""
        # Taken for long by a session that does not read what it is sent: others are not to wait for it.
        is_free = self.lock.acquire(timeout=_SEND_SECONDS)
        try:
            if self.ended:
                return
            self.ended = True
            with suppress(OSError):
                if is_free:
                    body = json.dumps({"kind": kind, "message": message}).encode()
                    frames.send(self.connection, frames.FAILURE, body)
                self.connection.shutdown(socket.SHUT_RDWR)
        finally:
            if is_free:
                self.lock.release()

    def turn(self, answer: bytes) -> bytes | None:
        """Hand the session its page's answer and return its next request, ``None`` at the end."""
        with self.lock:
            if self.ended:
                return None
            self.since = None
            with suppress(OSError):
                frames.send(self.connection, frames.MESSAGE, answer)
        try:
            request = frames.receive(self.connection)[1]
        except EOFError:
            return None
        self.since = time.monotonic()
        return request


class Server(ThreadingHTTPServer):
    """Serves ``pages`` by their names; ``on_loss`` is told which has lost its device, and why."""

    daemon_threads = True

    def __init__(
        self, pages: Mapping[str, BrowserPage], on_loss: Callable[[BrowserPage, str], None]
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages, self.on_loss = pages, on_loss

    def handle_error(self, *_: object) -> None:
        """Say nothing: a page that is closed leaves its requests half done."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Serve the page, its job, its files, and those of the package."""
        _, name, *path = self.path.split("/")
        page = self.server.pages.get(name)
        match page, path:
            case None, _:
                self.send_error(404)
            case _, [""]:
                self._answer(200, _HTML, "text/html")
            case _, ["page.js"]:
                self._answer(200, _PAGE.read_bytes(), "text/javascript")
            case BrowserPage(job=job), ["job"]:
                self._answer(200, json.dumps(job).encode(), "application/json")
            case BrowserPage(files=files), ["file", index] if index in map(str, range(len(files))):
                self._send_file(os.dup(files[int(index)]), "application/octet-stream")
            case _, ["dist", name] if (file := find_package().dist / name).is_file():
                kind = _TYPES.get(file.suffix, "application/octet-stream")
                self._send_file(os.open(file, os.O_RDONLY), kind)
            case _:
                self.send_error(404)

    def do_POST(self) -> None:
        """Take an answer and give the next request, or take the news that the device is lost."""
        _, name, *path = self.path.split("/")
        page = self.server.pages.get(name)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match page, path:
            case BrowserPage(), ["turn"] if (request := page.turn(body)) is not None:
                self._answer(200, request, "application/octet-stream")
            case BrowserPage(), ["turn"]:
                self._answer(204, b"", "text/plain")
            case BrowserPage(), ["lost"]:
                words = body.decode("utf-8", "replace")
                self.server.on_loss(page, f"the browser has lost its GPU process ({words})")
            case _:
                self.send_error(404)

    def _head(self, status: int, length: int, kind: str) -> None:
        self.send_response(status)
        for key, value in _HEADERS.items():
            self.send_header(key, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        with suppress(OSError):
            self._head(status, len(body), kind)
            self.wfile.write(body)

    def _send_file(self, descriptor: int, kind: str) -> None:
        try:
            size = os.fstat(descriptor).st_size
            self._head(200, size, kind)
            sent = 0
            # By position: two pages may read the same open file.
            while sent < size and (part := os.pread(descriptor, _PART, sent)):
                self.wfile.write(part)
                sent += len(part)
        except OSError:
            self.close_connection = True
        finally:
            os.close(descriptor)
