"""The process that has the browser: one page for each session that connects, none for two.

Run as ``python -m onnx_gate.runtimes.web.broker FOLDER DESCRIPTOR PARENT``: it serves the listening
socket DESCRIPTOR, writes below FOLDER, and lives until its standard input or the process PARENT ends.

What it keeps apart, as the processes of models are strangers to each other:

- A session has one connection, and reaches its own page through it and nothing else. It never speaks
  to the browser, so that no model can answer for another. The browser's commands go over pipes that
  only this process has.
- A page has a browser context of its own (so a process, storage and cache of its own), an address that
  nobody can guess, and the files whose descriptors its session has sent: this process opens none
  that a session names.
- The server listens on 127.0.0.1 alone, and the browser finds no other machine.
- A connection that ends takes its page along; a page that ends says so to its connection.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from onnx_gate.runtimes.web import frames
from onnx_gate.runtimes.web.chromium import WEBGPU_FLAGS, BrowserError, Chromium, has_sandbox
from onnx_gate.runtimes.web.package import PackageMissing, find_package

_LOOK_SECONDS = 0.5
_PR_SET_CHILD_SUBREAPER = 36
_PART = 1 << 20
_CRASH = "Target.targetCrashed"
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
class _Page:
    """One session's page: ``job`` is what it is to load, ``files`` the model and what it points at."""

    connection: socket.socket
    job: dict[str, Any]
    files: list[int]
    target: str = ""
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, kind: str, message: str) -> None:
        """Tell the session why there will be no answer, and end it."""
        with self.lock:
            if self.ended:
                return
            self.ended = True
            with suppress(OSError):
                body = json.dumps({"kind": kind, "message": message}).encode()
                frames.send(self.connection, frames.FAILURE, body)
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def turn(self, answer: bytes) -> bytes | None:
        """Hand the session its page's answer and return its next request, ``None`` at the end."""
        with self.lock:
            if self.ended:
                return None
            with suppress(OSError):
                frames.send(self.connection, frames.MESSAGE, answer)
        try:
            return frames.receive(self.connection)[1]
        except EOFError:
            return None


class Broker:
    """Pages by their secret names, and the browser that has them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages: dict[str, _Page] = {}
        self._lock = threading.Lock()
        self._browser: Chromium | None = None
        self._starts = 0
        self._http = _Server(self._pages)
        threading.Thread(target=self._start, daemon=True).start()
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        """Serve each connection in a thread of its own, for ever."""
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """End the browser."""
        with self._lock:
            if self._browser is not None:
                self._browser.close()

    def _serve(self, connection: socket.socket) -> None:
        page = _Page(connection, {}, [])
        try:
            page.job = json.loads(frames.receive(connection)[1])
            for _ in range(int(page.job["files"])):
                page.files.append(frames.receive_file(connection))
            if page.files:
                self._show(page)
            else:
                page.turn(json.dumps(self._described()).encode())
        except (BrowserError, PackageMissing) as error:
            page.fail("missing", str(error))
        except (EOFError, ValueError, KeyError, TypeError):
            pass
        finally:
            connection.close()
            for file in page.files:
                os.close(file)

    def _start(self) -> None:
        """Have the browser started by the time that the first session needs it."""
        with suppress(BrowserError, PackageMissing):
            self._started()

    def _show(self, page: _Page) -> None:
        """Open the page and wait until it, or its session, has ended."""
        browser = self._started()
        name = secrets.token_urlsafe(24)
        self._pages[name] = page
        context = ""
        try:
            created = browser.command("Target.createBrowserContext", disposeOnDetach=True)
            context = created["browserContextId"]
            url = f"http://127.0.0.1:{self._http.server_address[1]}/{name}/"
            shown = browser.command("Target.createTarget", url=url, browserContextId=context)
            page.target = shown["targetId"]
            hangup = select.poll()
            hangup.register(page.connection, 0)
            hangup.poll()
        finally:
            page.ended = True
            del self._pages[name]
            with suppress(BrowserError):
                browser.command("Target.disposeBrowserContext", browserContextId=context)

    def _described(self) -> dict[str, str]:
        sandbox = "" if has_sandbox() else " without its sandbox"
        browser = f"{self._started().product}{sandbox}"
        return {"browser": browser, "onnxruntime-web": find_package().version}

    def _started(self) -> Chromium:
        with self._lock:
            if self._browser is None or not self._browser.alive():
                find_package()
                self._starts += 1
                profile = self._folder / f"profile-{self._starts}"
                profile.mkdir()
                self._browser = Chromium(profile, WEBGPU_FLAGS, self._take)
                self._browser.command("Target.setDiscoverTargets", discover=True)
            return self._browser

    def _take(self, event: Mapping[str, Any] | None) -> None:
        for page in list(self._pages.values()):
            if event is None:
                page.fail("crashed", "the browser has ended")
            elif event["method"] == _CRASH and page.target == event["params"]["targetId"]:
                page.fail("crashed", "its page has crashed")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, pages: Mapping[str, _Page]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages

    def handle_error(self, *_: object) -> None:
        """Say nothing: a page that is closed leaves its requests half done."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
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
            case _Page(job=job), ["job"]:
                self._answer(200, json.dumps(job).encode(), "application/json")
            case _Page(files=files), ["file", index] if index in map(str, range(len(files))):
                self._send_file(os.dup(files[int(index)]), "application/octet-stream")
            case _, ["dist", name] if (file := find_package().dist / name).is_file():
                kind = _TYPES.get(file.suffix, "application/octet-stream")
                self._send_file(os.open(file, os.O_RDONLY), kind)
            case _:
                self.send_error(404)

    def do_POST(self) -> None:
        """Take an answer, give the next request."""
        _, name, *path = self.path.split("/")
        page = self.server.pages.get(name)
        if page is None or path != ["turn"]:
            self.send_error(404)
            return
        answer = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = page.turn(answer)
        if request is None:
            self._answer(204, b"", "text/plain")
        else:
            self._answer(200, request, "application/octet-stream")

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


def main(folder: Path, listener: int, parent: int) -> None:
    """Serve until there is nobody to serve, and leave nothing."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its owner decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    broker = Broker(folder)
    accept = threading.Thread(
        target=broker.accept, args=(socket.socket(fileno=listener),), daemon=True
    )
    accept.start()
    try:
        while os.getppid() == parent and not select.select([0], [], [], _LOOK_SECONDS)[0]:
            pass
    finally:
        broker.close()
        _end_children()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _end_children() -> None:
    me = psutil.Process()
    while children := me.children(recursive=True):
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children, 1)
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
