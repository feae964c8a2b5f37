"""Work that may take its process down, done in a fork of it."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import torch

from onnx_gate.deadline import Deadline
from onnx_gate.workers import child, process

# OpenMP 5.0, omp_pause_resource_t: what threads have stored is kept, and they are not.
_SOFT = 1
# The exit status of a fork that has ended before it would have changed what others see.
_ACTED = 77
# The niceness at which a process has what others leave of the cores.
_LEAST = 19
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Python's audit events of what others see.
_ACTS = frozenset(
    {
        *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
        *(
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "os.exec",
            "os.system",
            "os.kill",
            "os.putenv",
        ),
        *("fcntl.flock", "fcntl.lockf", "sqlite3.connect"),
    }
)


class Trouble(str):
    """A sentence on how a fork ended without an answer.

    ``killed`` where a signal ended it, ``acted`` where it would have changed what others see.
    """

    killed: bool
    acted: bool

    def __new__(cls, text: str = "", *, killed: bool = False, acted: bool = False) -> Trouble:
        """Make a sentence; none is no trouble."""
        trouble = super().__new__(cls, text)
        trouble.killed, trouble.acted = killed, acted
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


class Fork:
    """A function at work in a fork of this process, which returns JSON data.

    The fork has one thread, because the others of a thread pool do not come along. ``beside``: it works
    beside this process, with the least priority, and ends by itself where it would change what others see.
    """

    def __init__(self, function: Callable[[], dict[str, Any]], *, beside: bool = False) -> None:
        """Begin; raises ``OSError`` where there can be no more processes."""
        self._status = 0
        self._reading, writing = os.pipe()
        parent = os.getpid()
        if torch.get_num_threads() > 1:  # a fork of others has none of the threads that it knows of
            pause_openmp()
        self._pid = os.fork()
        if self._pid == 0:
            _work(function, writing, parent if beside else None)
        os.close(writing)

    def answer(self, seconds: float) -> tuple[dict[str, Any], Trouble]:
        """Return what the function returns, and why not, as ``run_forked`` does."""
        data, late = _collect(self._reading, Deadline(seconds))
        status = self.end(kill=late)
        if late:
            return {}, Trouble(f"no answer after {seconds:.0f} s")
        return _answered(data, status)

    def end(self, *, kill: bool = True) -> int:
        """Return its wait status, once it has ended."""
        if self._pid:
            os.close(self._reading)
            with suppress(ChildProcessError):  # who waits for any child has it
                ended, self._status = os.waitpid(self._pid, os.WNOHANG if kill else 0)
                if not ended:
                    os.kill(self._pid, signal.SIGKILL)
                    _, self._status = os.waitpid(self._pid, 0)
            self._pid = 0
        return self._status


def run_forked(
    function: Callable[[], dict[str, Any]], seconds: float
) -> tuple[dict[str, Any], Trouble]:
    """Return what ``function`` returns in a fork of this process (JSON data), and why not.

    Exactly one of the two says something: an empty dictionary comes with a sentence on how the
    fork ended, after ``seconds`` at the latest.
    """
    return Fork(function).answer(seconds)


def _answered(data: bytes, status: int) -> tuple[dict[str, Any], Trouble]:
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
    return {}, Trouble(f"ended with exit status {code} and no answer", acted=code == _ACTED)


def _work(function: Callable[[], dict[str, Any]], writing: int, parent: int | None) -> None:
    status = 1
    # What is the parent's is not ended here: a session's destructor waits for threads that did not
    # come along.
    gc.freeze()
    try:
        with os.fdopen(writing, "wb") as file:
            if parent is not None:
                _stay_beside(parent)
                sys.addaudithook(_end_where_it_acts)
            torch.set_num_threads(1)
            file.write(json.dumps(function()).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


@contextmanager
def beside(work: Callable[[Callable[[object], None]], object]) -> Iterator[list[Any]]:
    """Have ``work`` done in a fork while the body runs, with as many threads as this process has.

    Yields a list, which afterwards has what the fork has told by the end of the body, whole objects in
    order (as pickles, in memory). The fork is ended then, whatever it does, and nothing that becomes of it
    is an error here. It ends by itself where it would look at what this process has not, whose record of
    that it has no part in, or would change what others see.
    """
    told: list[Any] = []
    parent = os.getpid()
    try:
        file = os.fdopen(os.memfd_create("told"), "w+b")
        pause_openmp()
        pid = os.fork()
    except (OSError, AttributeError):  # no more processes, or no Linux
        yield told
        return
    if pid == 0:
        _tell(work, file, parent)
    try:
        yield told
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        # The last one may be cut off, which pickle says in many ways.
        with file, suppress(Exception):
            file.seek(0)
            while True:
                told.append(pickle.load(file))


def _tell(work: Callable[[Callable[[object], None]], object], file: IO[bytes], parent: int) -> None:
    def tell(what: object) -> None:
        file.write(pickle.dumps(what, pickle.HIGHEST_PROTOCOL))
        file.flush()

    try:
        gc.freeze()
        _stay_beside(parent)
        sys.addaudithook(_end_where_it_looks)
        work(tell)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _stay_beside(parent: int) -> None:
    process.die_with_parent(parent)
    os.nice(_LEAST)


def _end_where_it_looks(event: str, arguments: tuple[Any, ...]) -> None:
    """End the process where it looks at something new, or changes what others see."""
    if event == child.LOOKED:
        os._exit(0)
    _end_where_it_acts(event, arguments)


def _end_where_it_acts(event: str, arguments: tuple[Any, ...]) -> None:
    """End the process where it would change what others see."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
    if writes or event in _ACTS or event.startswith(("socket.", "subprocess.")):
        os._exit(_ACTED)


def pause_openmp() -> None:
    """End the threads of OpenMP that wait for work, as they do not come along into a fork.

    Both processes start new ones when there is work. Where OpenMP is another one than GNU's, nothing is
    done.
    """
    with suppress(OSError, AttributeError):
        with open("/proc/self/maps") as maps:
            known = {line.split()[-1] for line in maps if "libgomp" in line}
        for path in known:
            ctypes.CDLL(path).omp_pause_resource_all(_SOFT)


def _collect(reading: int, deadline: Deadline) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    while True:
        if not select.select([reading], [], [], deadline.left)[0]:
            return b"", True
        part = os.read(reading, 1 << 20)
        if not part:
            return b"".join(parts), False
        parts.append(part)
