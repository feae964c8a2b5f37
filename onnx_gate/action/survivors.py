"""Ending all that somebody else's code has started, however it hides (Linux).

A process that leaves its session, and whose parents end, is adopted by the nearest *reaper* above it.
That is the first process of a container, which is another than this one under ``docker run --init``: so
this process makes itself the reaper, and whatever came from it stays below it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from onnx_gate.workers.process import ProcessRow, process_table, set_subreaper

_SECONDS = 10.0
_PAUSE = 0.01


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own below this process, for good."""
    set_subreaper(True)


def end_all(uid: int | None, seconds: float = _SECONDS) -> int:
    """Kill every process below this one, and all of the user ``uid``; return how many live on.

    To be called while this process waits for none of its children: it reaps them all.
    """
    deadline = time.monotonic() + seconds
    while True:
        _reap()
        alive = _alive(process_table(), uid)
        if not alive or time.monotonic() > deadline:
            return len(alive)
        if uid is not None and _alone():
            _kill_user(uid)
        for pid in alive:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def _alone() -> bool:
    """Return whether the processes that can be seen are this container's, under an init or not."""
    return 1 in (os.getpid(), os.getppid())


def _alive(table: Mapping[int, ProcessRow], uid: int | None) -> list[int]:
    children: dict[int, list[int]] = {}
    for row in table.values():
        children.setdefault(row.ppid, []).append(row.pid)
    below: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in below:
                below.add(pid)
                waiting.append(pid)
    if uid is not None and _alone():
        below |= {pid for pid in table if _owner(pid) == uid}
    return [pid for pid in below if table[pid].state != "Z"]


def _owner(pid: int) -> int | None:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return None


def _kill_user(uid: int) -> None:
    """Kill all of a user's processes in one call, which one that forks all the time cannot outrun."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
