"""Work that may take its process down, done in a fork of it."""

from __future__ import annotations

import gc
import json
import mmap
import os
import select
import signal
import traceback
from collections.abc import Callable
from typing import Any

import torch

from onnx_gate.deadline import Deadline


class Trouble(str):
    """A sentence on how a fork ended without an answer; ``killed`` where a signal ended it."""

    killed: bool

    def __new__(cls, text: str = "", *, killed: bool = False) -> Trouble:
        """Make a sentence; none is no trouble."""
        trouble = super().__new__(cls, text)
        trouble.killed = killed
        return trouble


class SharedLine:
    """A line that a fork writes and this process reads, whatever becomes of the fork."""

    def __init__(self) -> None:
        """Have an empty one, of as many bytes as a page of memory."""
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def write(self, line: str) -> None:
        """Put a line in the place of the one before."""
        self._memory[:] = line.encode()[: mmap.PAGESIZE].ljust(mmap.PAGESIZE, b"\0")

    def read(self) -> str:
        """Return the last line that was written, '' where none was."""
        return self._memory[:].rstrip(b"\0").decode("utf-8", "replace")


def run_forked(
    function: Callable[[], dict[str, Any]], seconds: float
) -> tuple[dict[str, Any], Trouble]:
    """Return what ``function`` returns in a fork of this process (JSON data), and why not.

    Exactly one of the two says something: an empty dictionary comes with a sentence on how the
    fork ended, after ``seconds`` at the latest. The fork has one thread, because the others of a
    thread pool do not come along.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work(function, writing)
    os.close(writing)
    data, late = _collect(reading, Deadline(seconds))
    os.close(reading)
    if late:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if late:
        return {}, Trouble(f"no answer after {seconds:.0f} s")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return {}, Trouble(f"killed by {name}", killed=True)
    try:
        answer = json.loads(data)
        if status == 0 and isinstance(answer, dict):
            return answer, Trouble()
    except ValueError:
        pass
    code = os.waitstatus_to_exitcode(status)
    return {}, Trouble(f"ended with exit status {code} and no answer")


def _work(function: Callable[[], dict[str, Any]], writing: int) -> None:
    status = 1
    # What is the parent's is not ended here: a session's destructor waits for threads that did not
    # come along.
    gc.freeze()
    try:
        torch.set_num_threads(1)
        data = json.dumps(function()).encode()
        with os.fdopen(writing, "wb") as file:
            file.write(data)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _collect(reading: int, deadline: Deadline) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    while True:
        if not select.select([reading], [], [], deadline.left)[0]:
            return b"", True
        part = os.read(reading, 1 << 20)
        if not part:
            return b"".join(parts), False
        parts.append(part)
