"""Pages in a headless Chromium: open one, ask it something, press keys, take its picture.

Every request, dialog and complaint of a page is kept, so that a test can say that there was none.
"""

from __future__ import annotations

import base64
import json
import math
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnx_gate_engines.web.chromium import BrowserError, Chromium, find_chromium

WEB = Path(__file__).parent / "web" / "node_modules"
"""What ``npm ci --prefix tools/web`` installs: axe-core, GitHub's stylesheet, ONNX Runtime Web."""

_FLAGS = ("--disable-gpu", "--hide-scrollbars")
_LOAD_SECONDS = 300
_KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}


def missing() -> str:
    """Return what a machine lacks for opening pages, and how to get it; empty where nothing is."""
    try:
        find_chromium()
    except BrowserError as error:
        return str(error)
    return ""


def missing_packages() -> str:
    """Return how to get what npm has to install; empty where it is there."""
    return "" if (WEB / "axe-core").is_dir() else "no axe-core: npm ci --prefix tools/web"


@contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium with a profile of its own, and end it.

    Raises ``SystemExit`` with the remedy where there is none.
    """
    if reason := missing():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder, "profile")
        profile.mkdir()
        running = Browser(profile)
        try:
            yield running
        finally:
            running.chromium.close()


class Browser:
    """A running Chromium, and what it says of its pages."""

    def __init__(self, profile: Path) -> None:
        self.events: list[Mapping[str, Any]] = []
        self._arrived = threading.Condition()
        self.chromium = Chromium(profile, _FLAGS, self._keep)

    def wait(self, method: str, session: str) -> None:
        """Wait for an event of a page that has not come since its events were last cleared.

        Raises ``BrowserError`` where it does not come.
        """
        with self._arrived:
            if not self._arrived.wait_for(
                lambda: any(
                    e["method"] == method and e.get("sessionId") == session for e in self.events
                ),
                _LOAD_SECONDS,
            ):
                raise BrowserError(f"no {method} in {_LOAD_SECONDS} s")

    def page(
        self, width: int = 1280, height: int = 800, *, dark: bool = False, scale: float = 1
    ) -> Page:
        """Return a new page of so many CSS pixels; one below 600 wide is a phone's."""
        send = self.chromium.command
        target = send("Target.createTarget", url="about:blank")["targetId"]
        session = send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.resize(width, height, scale)
        page.media(dark=dark)
        return page

    def _keep(self, _: Chromium, event: Mapping[str, Any] | None) -> None:
        if event is not None:
            with self._arrived:
                self.events.append(event)
                self._arrived.notify_all()


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **values: object) -> Mapping[str, Any]:
        """Send a command to this page and return its result; raises ``BrowserError``."""
        return self._browser.chromium.command(method, self._session, **values)

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
