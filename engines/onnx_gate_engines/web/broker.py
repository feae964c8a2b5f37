"""The process that has the browser: one page for each session that connects, none for two.

Run as ``python -m onnx_gate_engines.web.broker FOLDER DESCRIPTOR PARENT``: it serves the listening
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
- What pages have in common is the browser's GPU process. Whoever ends it ends the browser of all, and
  the others' sessions are repeated, each in a browser of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
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
from pathlib import Path
from typing import Any

import psutil

from onnx_gate_engines.web import frames
from onnx_gate_engines.web.chromium import WEBGPU_FLAGS, BrowserError, Chromium, has_sandbox
from onnx_gate_engines.web.package import PackageMissing, find_package
from onnx_gate_engines.web.pages import BrowserPage, Server

_LOOK_SECONDS = 0.5
# How long a model may keep the GPU process that others wait for. A U-Net's shaders take 20 s to be
# compiled; what takes longer is repeated where nobody waits.
_PATIENCE_SECONDS = 60.0
_PR_SET_CHILD_SUBREAPER = 36
_CRASH = "Target.targetCrashed"


class Broker:
    """Pages by their secret names, and the browsers that have them.

    All pages share one browser, and with it one GPU process. Where that process is gone, or may be busy
    for ever, the browser is ended, and each session comes again for a page in a browser of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages: dict[str, BrowserPage] = {}
        self._lock = threading.Lock()
        self._shared: Chromium | None = None
        self._starts = itertools.count(1)
        self._http = Server(self._pages, self._lose)
        threading.Thread(target=self._warm_up, daemon=True).start()
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        """Serve each connection in a thread of its own, for ever."""
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        page = BrowserPage(connection, {}, [])
        try:
            page.job = json.loads(frames.receive(connection)[1])
            for _ in range(int(page.job["files"])):
                page.files.append(frames.receive_file(connection))
            if not page.files:
                page.turn(json.dumps(self._described()).encode())
            elif page.job["alone"]:
                self._show_alone(page)
            else:
                page.browser = self._shared_browser()
                self._show(page, _PATIENCE_SECONDS)
        except (BrowserError, PackageMissing) as error:
            page.fail("missing", str(error))
        except (EOFError, ValueError, KeyError, TypeError):
            pass
        finally:
            connection.close()
            for file in page.files:
                os.close(file)

    def _warm_up(self) -> None:
        """Have the browser started by the time that the first session needs it."""
        with suppress(BrowserError, PackageMissing):
            self._shared_browser()

    def _show_alone(self, page: BrowserPage) -> None:
        page.browser = self._start()
        try:
            self._show(page, math.inf)
        finally:
            page.browser.close()

    def _show(self, page: BrowserPage, patience: float) -> None:
        """Open the page and wait until it, or its session, has ended."""
        assert page.browser is not None
        command = page.browser.command
        name = secrets.token_urlsafe(24)
        page.since = time.monotonic()
        self._pages[name] = page
        try:
            context = command("Target.createBrowserContext", disposeOnDetach=True)
            url = f"http://127.0.0.1:{self._http.server_address[1]}/{name}/"
            target = command("Target.createTarget", url=url, **context)
            page.target = target["targetId"]
            hangup = select.poll()
            hangup.register(page.connection, 0)
            while not hangup.poll(_LOOK_SECONDS * 1000):
                if page.seconds_on_gpu > patience:
                    page.fail("again", f"no answer came in {patience:.0f} s")
            if page.seconds_on_gpu:
                # What it has begun there may never end, and what others begin would wait for it.
                self._lose(page, "a model beside it was stopped in its work on the GPU process")
            else:
                command("Target.disposeBrowserContext", **context)
        except BrowserError as error:
            page.fail("again", str(error))
        finally:
            page.ended = True
            del self._pages[name]

    def _lose(self, page: BrowserPage, reason: str) -> None:
        """End the browser of a page, and with it all its other pages."""
        browser = page.browser
        assert browser is not None
        self._fail_all(browser, reason)
        browser.close()

    def _fail_all(self, browser: Chromium, reason: str) -> None:
        for page in list(self._pages.values()):
            if page.browser is browser:
                page.fail("again", reason)

    def _described(self) -> dict[str, str]:
        sandbox = "" if has_sandbox() else " without its sandbox"
        browser = f"{self._shared_browser().product}{sandbox}"
        return {"browser": browser, "onnxruntime-web": find_package().version}

    def _shared_browser(self) -> Chromium:
        with self._lock:
            if self._shared is None or not self._shared.alive():
                self._shared = self._start()
            return self._shared

    def _start(self) -> Chromium:
        find_package()
        profile = self._folder / f"profile-{next(self._starts)}"
        profile.mkdir()
        browser = Chromium(profile, WEBGPU_FLAGS, self._take)
        browser.command("Target.setDiscoverTargets", discover=True)
        return browser

    def _take(self, browser: Chromium, event: Mapping[str, Any] | None) -> None:
        if event is None:
            self._fail_all(browser, "the browser has ended")
        elif event["method"] == _CRASH:
            for page in list(self._pages.values()):
                if page.target == event["params"]["targetId"]:
                    page.since = None  # nothing waits for what it began, so the others may stay
                    page.fail("crashed", "its page has crashed")


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
