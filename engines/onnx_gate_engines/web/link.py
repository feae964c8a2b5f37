"""A session's way to its page, which is opened once more where the browser ended that others share."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from onnx_gate.findings import codes
from onnx_gate.runtimes.base import Array
from onnx_gate_engines.web import frames, wire
from onnx_gate_engines.web.service import connect

Message = tuple[Mapping[str, Any], Sequence[Array]]


class _BrowserEnded(Exception):
    """The browser ended, and this page may or may not be the reason."""


class BrowserLink:
    """One page, as the broker shows it.

    Where the browser that models share ends, which of them ended it is not to be seen. So each is
    repeated in a browser of its own, and only the one whose browser ends again is in error.
    ``repeated_because`` says why that was done, and is empty where it was not.
    """

    def __init__(self, label: str, job: Mapping[str, Any], files: Sequence[Path]) -> None:
        """Open nothing yet; ``files`` are the model and what it points at."""
        self._label, self._job, self._files = label, job, files
        self._connection: socket.socket | None = None
        self.repeated_because = ""

    def open(self) -> Mapping[str, Any]:
        """Return what the page says of the model; raises ``GateError`` where there is no page."""
        return self._ask(None)[0]

    def ask(self, request: bytes) -> Message:
        """Return the page's answer; raises ``GateError`` where there will be none."""
        return self._ask(request)

    def close(self) -> None:
        """Have the page closed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, request: bytes | None) -> Message:
        try:
            return self._try(request)
        except _BrowserEnded as ended:
            self.close()
            if self.repeated_because:
                raise codes.OG321.error(
                    f"{self._label}: {self.repeated_because}; again, in a browser of its own: {ended}"
                ) from ended
            self.repeated_because = str(ended)
            return self._ask(request)

    def _try(self, request: bytes | None) -> Message:
        if self._connection is None:
            opened = self._open()
            if request is None:
                return opened
            if "error" in opened[0]:
                raise _BrowserEnded(f"the model does not load again: {opened[0]['error']}")
        if request is not None:
            assert self._connection is not None
            with suppress(OSError):  # why the page has ended is there to be received
                frames.send(self._connection, frames.MESSAGE, request)
        return self._receive()

    def _open(self) -> Message:
        job = {**self._job, "files": len(self._files), "alone": bool(self.repeated_because)}
        with ExitStack() as opened:
            try:
                files = [opened.enter_context(path.open("rb")) for path in self._files]
            except OSError as error:
                raise codes.OG303.error(
                    f"{self._label}: {error.filename}: {error.strerror}"
                ) from error
            try:
                self._connection = connect()
                frames.send(self._connection, frames.JOB, json.dumps(job).encode())
                for file in files:
                    frames.send_file(self._connection, file.fileno())
            except OSError as error:
                raise codes.OG302.error(f"{self._label}: no browser: {error}") from error
        return self._receive()

    def _receive(self) -> Message:
        assert self._connection is not None
        try:
            kind, body = frames.receive(self._connection)
            if kind == frames.MESSAGE:
                return wire.decode(body)
            failure = json.loads(body)
        except (EOFError, wire.WireError) as error:
            raise codes.OG321.error(f"{self._label}: the browser has ended: {error}") from error
        if failure["kind"] == "again":
            raise _BrowserEnded(failure["message"])
        code = codes.OG302 if failure["kind"] == "missing" else codes.OG321
        raise code.error(f"{self._label}: {failure['message']}")
