"""A headless Chromium without a driver: the DevTools protocol over a pair of pipes.

It is enough to open a page, ask it something, press keys and take its picture. Every request, dialog
and complaint of a page is kept, so that a test can say that there was none.
"""

from __future__ import annotations

import base64
import fcntl
import json
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WEB = Path(__file__).parent / "web" / "node_modules"
"""What ``npm ci --prefix tools/web`` installs: axe-core and GitHub's stylesheet."""

_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}


def missing() -> str:
    """Return what a machine lacks for opening pages, and how to get it; empty where nothing is."""
    if not any(map(shutil.which, PROGRAMS)):
        return "no chromium on PATH: apt-get install chromium"
    return ""


def missing_packages() -> str:
    """Return how to get what npm has to install; empty where it is there."""
    return "" if (WEB / "axe-core").is_dir() else "no axe-core: npm ci --prefix tools/web"


@contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium with a profile of its own, and end it.

    Raises ``SystemExit`` with the remedy where there is none.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise SystemExit(missing())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        ours, theirs = os.pipe(), os.pipe()  # commands, answers
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)),
        ]
        # The browser reads from 3 and writes to 4; higher numbers first, in case ours are these.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (ours[0], theirs[1])]
        actions += [(os.POSIX_SPAWN_DUP2, end, fd) for end, fd in zip(ends, (3, 4), strict=True)]
        command = [program, *_QUIET, f"--user-data-dir={profile}", "about:blank"]
        process = os.posix_spawn(program, command, os.environ, file_actions=actions, setpgroup=0)
        for fd in (*ends, ours[0], theirs[1]):
            os.close(fd)
        try:
            with open(ours[1], "wb", buffering=0) as commands, open(theirs[0], "rb") as answers:
                yield Browser(commands, answers)
        finally:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)


class Browser:
    """A running Chromium: what is sent to it, and what it says."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._count = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **values: object) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept.

        Raises ``RuntimeError`` with Chromium's own words where it refuses.
        """
        self._count += 1
        message: dict[str, object] = {"id": self._count, "method": method, "params": values}
        if session is not None:
            message["sessionId"] = session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._count:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result

    def wait(self, method: str, session: str) -> None:
        """Wait for an event of a page that has not come since its events were last cleared."""
        while not any(e["method"] == method and e.get("sessionId") == session for e in self.events):
            self.events.append(self._next())

    def page(
        self, width: int = 1280, height: int = 800, *, dark: bool = False, scale: float = 1
    ) -> Page:
        """Return a new page of so many CSS pixels; one below 600 wide is a phone's."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.resize(width, height, scale)
        page.media(dark=dark)
        return page

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._answers.read1(1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **values: object) -> dict[str, Any]:
        """Send a command to this page and return its result."""
        return self._browser.send(method, self._session, **values)

    def resize(self, width: int, height: int = 800, scale: float = 1) -> None:
        """Show the page in a window of so many CSS pixels; one below 600 wide is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.send("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)

    def media(self, *, dark: bool = False, kind: str = "screen") -> None:
        """Show the page as on another medium: ``screen`` or ``print``, light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def open(self, file: Path) -> None:
        """Open a file and wait until all of it is loaded."""
        self._browser.events.clear()
        self.send("Page.navigate", url=file.resolve().as_uri())
        self._browser.wait("Page.loadEventFired", self._session)

    def ask(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression, of a promise what it comes to.

        Raises ``RuntimeError`` where it throws.
        """
        values = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = self.send("Runtime.evaluate", expression=expression, **values)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": _KEYS[key],
        }
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    def picture(self, target: Path, most: float = math.inf) -> None:
        """Write a picture of the page as a PNG file: of its first ``most`` pixels, or the whole."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        tall = self.ask("document.documentElement.getBoundingClientRect().height")
        height = min(tall, most)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        target.write_bytes(base64.b64decode(shot["data"]))

    def axe(self, **options: object) -> list[Mapping[str, Any]]:
        """Return what axe-core finds wrong with the page."""
        if not self.ask("'axe' in window"):
            self.ask((WEB / "axe-core" / "axe.min.js").read_text(encoding="utf-8") + ";0")
        result = self.ask(f"axe.run(document, {json.dumps(options)}).then(r => r.violations)")
        violations: list[Mapping[str, Any]] = result
        return violations

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened, its own left out."""
        sent = self._events("Network.requestWillBeSent")
        addresses = [event["request"]["url"] for event in sent]
        return addresses[1:]

    def complaints(self) -> list[str]:
        """Return what went on that a page of text has no use for: dialogs, errors, messages."""
        kinds = ("Page.javascriptDialogOpening", "Runtime.exceptionThrown", "Log.entryAdded")
        return [
            json.dumps(e)
            for kind in (*kinds, "Runtime.consoleAPICalled")
            for e in self._events(kind)
        ]

    def _events(self, method: str) -> list[dict[str, Any]]:
        events = self._browser.events
        return [
            e["params"]
            for e in events
            if e["method"] == method and e.get("sessionId") == self._session
        ]
