"""A headless Chromium, spoken to over a pair of pipes: nothing else can, and it ends with them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "CHROME_PATH"

# How long a browser may take to start, and to answer one command: on a busy machine, from a cold disk.
ANSWER_SECONDS = 60.0
_CLOSE_SECONDS = 3.0

# The descriptors that Chromium reads commands from and answers to.
_FROM_PIPE, _TO_PIPE = 3, 4

# Nothing but this machine's own address is reached: no other has a name, TCP to any other goes to a
# proxy that is not there, and WebRTC, which asks neither, has no UDP around the proxy.
ALONE = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>;127.0.0.1",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    # A page in the background is as good as one that is looked at.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    *ALONE,
)
# WebGPU on the processor: the same numbers on every machine.
WEBGPU_FLAGS = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--use-vulkan=swiftshader",
    "--disable-vulkan-surface",
    "--ignore-gpu-blocklist",
)


class BrowserError(Exception):
    """There is no browser, or it does not do as it should; the message says what to do."""


def find_chromium() -> Path:
    """Return the program that ``CHROME_PATH`` names, or the first on the path; raises ``BrowserError``."""
    named = os.environ.get(VARIABLE)
    for name in (named,) if named else NAMES:
        program = shutil.which(name)
        if program is not None:
            return Path(program)
    if named:
        raise BrowserError(f"{VARIABLE} is {named!r}, which is no program")
    raise BrowserError(
        "no Chromium was found on the path: install one (apt-get install chromium), or name it in "
        f"the variable {VARIABLE}"
    )


def version_of_chromium() -> str:
    """Return what the program says of itself, or that there is none."""
    try:
        program = str(find_chromium())
        asked = subprocess.run([program, "--version"], capture_output=True, timeout=ANSWER_SECONDS)
    except (BrowserError, OSError, subprocess.SubprocessError):
        return "none"
    return asked.stdout.decode("utf-8", "replace").strip()


class Chromium:
    """One running browser. ``on_event`` is called with it and each event of the DevTools protocol.

    With ``None`` for an event it is called once, when the browser has ended; always by one thread.
    """

    def __init__(
        self,
        profile: Path,
        flags: Sequence[str],
        on_event: Callable[[Chromium, Mapping[str, Any] | None], None],
    ) -> None:
        """Start it with the folder ``profile`` for all that it writes; raises ``BrowserError``."""
        program = find_chromium()
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._log = profile / "chromium.log"
        self._on_event = on_event
        self._waiting: dict[int, _Answer] = {}
        self._number = 0
        self._lock = threading.Lock()
        command = [
            *(str(program), *_FLAGS, *flags, f"--user-data-dir={profile}"),
            *(() if has_sandbox() else ("--no-sandbox",)),
            "about:blank",
        ]
        try:
            self.process = psutil.Process(_spawn(command, commands, answers, self._log))
        except OSError as error:
            os.close(self._commands)
            os.close(self._answers)
            raise BrowserError(f"{program} could not be started: {error}") from error
        finally:
            os.close(commands)
            os.close(answers)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.product: str = self.command("Browser.getVersion")["product"]
        except BrowserError as error:
            words = self._last_words(error)
            self.close()
            raise BrowserError(f"{program} could not be started: {words}") from error

    def command(
        self, method: str, session: str | None = None, **parameters: Any
    ) -> Mapping[str, Any]:
        """Return the result of one command of the DevTools protocol; raises ``BrowserError``.

        ``session`` is a page's that was attached to; without one it is the browser's own command.
        """
        answer = _Answer()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = answer
            message = {"id": number, "method": method, "params": parameters}
            if session is not None:
                message["sessionId"] = session
            try:
                _write(self._commands, json.dumps(message).encode() + b"\0")
            except OSError as error:
                raise BrowserError("the browser has ended") from error
        if not answer.arrived.wait(ANSWER_SECONDS):
            raise BrowserError(f"the browser has not answered {method} in {ANSWER_SECONDS:.0f} s")
        if answer.result is None:
            raise BrowserError(answer.error)
        return answer.result

    def alive(self) -> bool:
        """Return whether the browser runs."""
        return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE

    def close(self) -> None:
        """End the browser and everything that came from it: nothing that it wrote is kept."""
        with suppress(psutil.Error):
            family = [self.process, *self.process.children(recursive=True)]
            for process in family:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(family, _CLOSE_SECONDS)
        shutil.rmtree(self._log.parent, ignore_errors=True)

    def _read(self) -> None:
        received = b""
        while part := os.read(self._answers, 1 << 16):
            *messages, received = (received + part).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        os.close(self._answers)
        for answer in list(self._waiting.values()):
            answer.fail("the browser has ended")
        self._on_event(self, None)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "method" in message:
            self._on_event(self, message)
        answer = self._waiting.pop(message.get("id", 0), None)
        if answer is not None:
            if "error" in message:
                answer.fail(str(message["error"].get("message")))
            else:
                answer.result = message["result"]
                answer.arrived.set()

    def _last_words(self, error: BrowserError) -> str:
        with suppress(OSError):
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
            if lines:
                return f"{error}: {lines[-1]}"
        return str(error)


def has_sandbox() -> bool:
    """Return whether Chromium's own sandbox can be had: not as root, nor without new privileges."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return os.geteuid() != 0 and "NoNewPrivs:\t1" not in status
    return os.geteuid() != 0


class _Answer:
    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.result: Mapping[str, Any] | None = None
        self.error = ""

    def fail(self, error: str) -> None:
        self.error = error
        self.arrived.set()


def _spawn(command: list[str], commands: int, answers: int, log: Path) -> int:
    """Start a browser in a session of its own, with its two pipes where it looks for them."""
    # Out of the way of 3 and 4, which the duplicates below may not overwrite.
    commands, answers = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (commands, answers))
    # The path of a socket that it makes has to be short.
    home, temporary = str(log.parent), str(log.parent.parent)
    mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        return os.posix_spawn(
            command[0],
            command,
            dict(os.environ, HOME=home, TMPDIR=temporary),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), mode, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, commands, _FROM_PIPE),
                (os.POSIX_SPAWN_DUP2, answers, _TO_PIPE),
            ],
            setsid=True,
        )
    finally:
        os.close(commands)
        os.close(answers)


def _write(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]
