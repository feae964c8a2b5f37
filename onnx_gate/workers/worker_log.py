"""A worker's output: the gate reads it from a pipe, and keeps its beginning and its end.

A worker that had the file itself could fill the disk faster than anyone looks: at 300 MB a second
a look every few seconds is too late, and what is emptied then is the beginning, where the cause
stands. So the file grows by the gate's hand only. The beginning goes into it as it comes; of the
rest the newest bytes are kept in memory and written in the end, with a line on how many are not.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from onnx_gate.text import last_lines

HEAD_BYTES = 4 << 20
"""Bytes of the beginning that are kept: some 50,000 lines."""

TAIL_BYTES = 1 << 20
"""Bytes of the end that are kept, in the gate's memory for each worker that runs."""

TAIL_LINES = 20

_PIPE_BYTES = 1 << 20  # of Linux' default maximum for anybody: fewer waits for the gate


class WorkerLog:
    """The log of one worker; ``writer`` is the end that the worker prints to."""

    def __init__(self, path: Path, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        """Open a new, empty log at ``path``; raises ``OSError``.

        Whatever lay there before is removed, never followed or written to.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._head, self._tail = head, tail
        self._total = 0
        self._newest = bytearray()

    def fileno(self) -> int:
        """Return what becomes readable when the worker has printed."""
        return self._reader

    def release(self) -> None:
        """Close this process's copy of ``writer``, once the worker has its own."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def read(self, most: int) -> bool:
        """Take in at most ``most`` bytes; return false when there will be no more."""
        while most > 0:
            try:
                data = os.read(self._reader, min(most, 1 << 18))
            except BlockingIOError:
                return True
            if not data:
                return False
            most -= len(data)
            self._keep(data)
        return True

    def last_lines(self) -> tuple[str, ...]:
        """Return the last ``TAIL_LINES`` lines, cleaned, each of at most 500 characters."""
        return last_lines(bytes(self._newest[-(64 << 10) :]), TAIL_LINES)

    def close(self) -> None:
        """Write the end that was kept, and close the file."""
        left = self._total - self._head
        if left > 0:
            lost = left - len(self._newest)
            if lost > 0:
                self._write(f"\n[{lost} bytes are left out here]\n".encode())
            self._write(self._newest[-left:])
        self._newest.clear()
        self.release()
        os.close(self._reader)
        os.close(self._file)

    def _keep(self, data: bytes) -> None:
        room = self._head - self._total
        if room > 0:
            self._write(data[:room])
        self._total += len(data)
        self._newest += data
        del self._newest[: -self._tail]

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        with suppress(OSError):  # a full disk is no reason to lose a verdict
            while view:
                view = view[os.write(self._file, view) :]
