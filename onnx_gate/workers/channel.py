"""Framed JSON messages over a pipe, from a worker that nobody trusts to the gate.

A frame is ``magic | token | kind | length | body``. The token is random and known to one worker
only, so that what a stray process or a library writes to a wrong descriptor is never taken for a
message. The reading side accepts nothing else: one byte out of place ends the conversation.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from onnx_gate.text import binary_size

RESULT = "result"
"""The kind of the messages that are kept until their worker has ended."""

MAX_MESSAGE = 64 << 20
"""Largest body of one frame, in bytes."""

MAX_TOTAL = 256 << 20
"""Most bytes that one worker may send, headers included."""

MAX_PARSED = 128 << 20
"""Most memory, by an estimate from above, that a message, and all results of a worker, may take."""

TOKEN_BYTES = 16

_MAGIC = b"OGF1"
_HEADER = struct.Struct("!4s16scI")
_MESSAGE, _END = b"M", b"E"
# What Python makes of a mark in JSON, at most: `{}` is 3 bytes of text with its comma.
_OBJECT, _ELEMENT, _WIDE = 256, 128, 4


class ProtocolError(Exception):
    """The worker sent something that is not a frame, or a frame that is not allowed."""


def new_token() -> bytes:
    """A fresh secret of ``TOKEN_BYTES`` bytes."""
    return secrets.token_bytes(TOKEN_BYTES)


class Sender:
    """The worker's end. Messages may be sent from several threads, until ``end``."""

    def __init__(self, fd: int, token: bytes) -> None:
        self._fd = fd
        self._token = token
        self._lock = threading.Lock()
        self._ended = False

    def send(self, message: Mapping[str, object]) -> None:
        """Send one JSON object with a string under ``kind``.

        Raises ``ValueError`` for anything else, for NaN and infinities, for bodies over
        ``MAX_MESSAGE`` and after ``end``; ``TypeError`` for what JSON cannot hold; ``OSError``
        where the gate no longer listens.
        """
        if not isinstance(message.get("kind"), str):
            raise ValueError("a message needs a string under 'kind'")
        text = json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        body = text.encode("utf-8", "replace")
        if len(body) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE}")
        self._write(_MESSAGE, body)

    def end(self) -> None:
        """Say that the work is complete; nothing may follow."""
        self._write(_END, b"")

    def _write(self, kind: bytes, body: bytes) -> None:
        frame = memoryview(_HEADER.pack(_MAGIC, self._token, kind, len(body)) + body)
        with self._lock:
            if self._ended:
                raise ValueError("the work has already ended")
            self._ended = kind == _END
            while frame:
                frame = frame[os.write(self._fd, frame) :]


class Decoder:
    """The gate's end: bytes in, messages out."""

    def __init__(
        self, token: bytes, *, max_message: int = MAX_MESSAGE, max_total: int = MAX_TOTAL
    ) -> None:
        self._token = token
        self._max_message = max_message
        self._max_total = max_total
        self._buffer = bytearray()
        self._total = 0
        self._results = 0
        self.ended = False
        """Whether the end-of-work frame has arrived."""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield every message that ``data`` completes.

        Raises ``ProtocolError`` at the first byte that no worker of ours would have sent, after
        the messages before it were yielded.
        """
        self._total += len(data)
        if self._total > self._max_total:
            raise ProtocolError(f"it sent more than {self._max_total} bytes")
        self._buffer += data
        while self._buffer:
            if self.ended:
                raise ProtocolError("it sent data after the end of its work")
            frame = self._next_frame()
            if frame is None:
                return
            kind, body = frame
            if kind == _END:
                self.ended = True
            else:
                yield self._parsed(body)

    def _parsed(self, body: bytes) -> dict[str, Any]:
        """Return a message that is small enough to be read, with the results before to be kept."""
        weight = _weight(body)
        if weight > MAX_PARSED:
            raise ProtocolError(f"it sent a message that takes {_too_much(weight)}")
        message = _parse(body)
        if message["kind"] == RESULT:
            self._results += weight
            if self._results > MAX_PARSED:
                raise ProtocolError(f"it sent results that take {_too_much(self._results)}")
        return message

    def _next_frame(self) -> tuple[bytes, bytes] | None:
        prefix = _MAGIC + self._token
        head = bytes(self._buffer[: _HEADER.size])
        if head[: len(prefix)] != prefix[: len(head)]:
            raise ProtocolError("it sent data that is no message of ours")
        if len(head) < _HEADER.size:
            return None
        kind, length = _HEADER.unpack(head)[2:]
        if kind not in (_MESSAGE, _END) or (kind == _END and length):
            raise ProtocolError("it sent a frame of an unknown kind")
        if length > self._max_message:
            raise ProtocolError(f"it sent a message of {length} bytes")
        stop = _HEADER.size + length
        if len(self._buffer) < stop:
            return None
        body = bytes(self._buffer[_HEADER.size : stop])
        del self._buffer[:stop]
        return kind, body


def _weight(body: bytes) -> int:
    """Return about how many bytes a body takes once it is parsed, and rather more than it does.

    Text of a few bytes becomes objects of many times their size, which are counted without making them.
    """
    narrow = body.isascii() and b"\\u" not in body
    text = len(body) if narrow else _WIDE * len(body)
    return text + _OBJECT * body.count(b"{") + _ELEMENT * (body.count(b"[") + body.count(b","))


def _too_much(weight: int) -> str:
    return f"{binary_size(weight)} of memory to read, where {binary_size(MAX_PARSED)} is allowed"


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\ud" in body.lower():
            # A lone surrogate passes json.loads and then fails in whoever writes the report.
            json.dumps(message, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"it sent invalid JSON ({type(error).__name__})") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ProtocolError("it sent JSON that is not an object with a string under 'kind'")
    return message


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
