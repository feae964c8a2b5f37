"""Frames on the socket between a session and the broker: a kind, a length, and that many bytes."""

from __future__ import annotations

import socket
import struct

_HEAD = struct.Struct("!cQ")
JOB, FILE, MESSAGE, FAILURE = b"J", b"F", b"M", b"E"

_PART = 1 << 20


def send(connection: socket.socket, kind: bytes, body: bytes) -> None:
    """Send one frame; raises ``OSError``."""
    connection.sendall(_HEAD.pack(kind, len(body)))
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[bytes, bytes]:
    """Return kind and body of the next frame; raises ``EOFError`` where there is none."""
    try:
        kind, length = _HEAD.unpack(_exactly(connection, _HEAD.size))
        return kind, _exactly(connection, length)
    except OSError as error:
        raise EOFError(str(error)) from error


def send_file(connection: socket.socket, descriptor: int) -> None:
    """Hand over an open file; raises ``OSError``."""
    socket.send_fds(connection, [FILE], [descriptor])


def receive_file(connection: socket.socket) -> int:
    """Return the descriptor of the next file; raises ``EOFError`` where there is none."""
    try:
        kind, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    except OSError as error:
        raise EOFError(str(error)) from error
    if kind != FILE or not descriptors:
        raise EOFError("no file was sent")
    return descriptors[0]


def _exactly(connection: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = connection.recv(min(length, _PART))
        if not part:
            raise EOFError("the other side has ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
