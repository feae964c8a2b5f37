"""What the operating system knows of processes: families, and the kernel's favours.

A *family* is a worker, every process of its session, and all their descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from onnx_gate.deadline import Deadline

KILL_SECONDS = 10.0
"""How long a family may take to be killed, before whoever asked goes on to the next one."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class ProcessRow:
    """One process: ``state`` is the kernel's letter (R, S, D, T, t, Z), ``rss`` is in bytes.

    ``seconds`` are those of a processor, its own and those of the children that it has waited for.
    """

    pid: int
    ppid: int
    sid: int
    state: str
    rss: int
    seconds: float


def process_table() -> dict[int, ProcessRow]:
    """Every process that is visible now, by pid."""
    if sys.platform != "linux":
        return _psutil_table()
    page, ticks = os.sysconf("SC_PAGESIZE"), os.sysconf("SC_CLK_TCK")
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            # The command's name may hold blanks and brackets: the fields follow the last one.
            fields = _read_at_once(f"/proc/{name}/stat").rpartition(b")")[2].split()
            table[int(name)] = ProcessRow(
                pid=int(name),
                ppid=int(fields[1]),
                sid=int(fields[3]),
                state=fields[0].decode(),
                rss=int(fields[21]) * page,
                seconds=sum(map(int, fields[11:15])) / ticks,
            )
        except (OSError, IndexError, ValueError):
            continue
    return table


def _read_at_once(path: str) -> bytes:
    """Return the start of a file. With a file object around it all processes take twice as long."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _psutil_table() -> dict[int, ProcessRow]:
    letters = {psutil.STATUS_STOPPED: "T", psutil.STATUS_ZOMBIE: "Z"}
    table = {}
    for process in psutil.process_iter(["ppid", "status", "memory_info", "cpu_times"]):
        memory = process.info["memory_info"]
        with suppress(OSError):
            table[process.pid] = ProcessRow(
                pid=process.pid,
                ppid=process.info["ppid"] or 0,
                sid=os.getsid(process.pid),
                state=letters.get(process.info["status"], "S"),
                rss=memory.rss if memory else 0,
                seconds=sum(process.info["cpu_times"] or ()),
            )
    return table


def families(
    table: Mapping[int, ProcessRow], roots: Collection[int]
) -> dict[int, list[ProcessRow]]:
    """The family of each worker in ``roots``, the worker itself included."""
    owners: dict[int, int | None] = {root: root for root in roots}
    members: dict[int, list[ProcessRow]] = {root: [] for root in roots}
    for row in table.values():
        trail: list[int] = []
        at: ProcessRow | None = row
        owner: int | None = None
        while at is not None:
            if at.pid in owners:
                owner = owners[at.pid]
                break
            trail.append(at.pid)
            if at.sid in members:
                owner = at.sid
                break
            # Marked before its parent is looked at, so that a table read while pids were being
            # given out again cannot lead in a circle.
            owners[at.pid] = None
            at = table.get(at.ppid)
        owners.update(dict.fromkeys(trail, owner))
        if owner is not None:
            members[owner].append(row)
    return members


def descends(pid: int, ancestor: int) -> bool:
    """Return whether a process, which is there, is a child of another or of one of its children."""
    table, seen = process_table(), set[int]()
    while (row := table.get(pid)) is not None and pid not in seen:
        if row.ppid == ancestor:
            return True
        seen.add(pid)
        pid = row.ppid
    return False


def children_elsewhere() -> list[ProcessRow]:
    """This process's children in other sessions: every worker and all it leaves behind are."""
    me, session = os.getpid(), os.getsid(0)
    return [row for row in process_table().values() if row.ppid == me and row.sid != session]


def end_orphans(foreign_children: Collection[int], seconds: float) -> None:
    """Kill and reap what lost server and workers have left to this process (Linux).

    ``foreign_children`` are children that are none of theirs; after ``seconds`` it gives up.
    """
    deadline = Deadline(seconds)
    while not deadline.passed():
        orphans = [row for row in children_elsewhere() if row.pid not in foreign_children]
        if not orphans:
            return
        for row in orphans:
            with suppress(OSError):
                os.kill(row.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(row.pid, os.WNOHANG)
        time.sleep(0.002)


def anonymous_bytes(pid: int) -> int:
    """Resident memory of a process that is of no file: what its forks share with it at first.

    0 where the system does not say.
    """
    with suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm", "rb") as file:
        fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGESIZE")
    return 0


def kill_family(root: int) -> None:
    """SIGKILL to the worker's process group, then to all of its family."""
    with suppress(OSError):
        os.killpg(root, signal.SIGKILL)
    kill_until_none(lambda table: families(table, {root})[root])


def kill_until_none(select: Callable[[Mapping[int, ProcessRow]], Iterable[ProcessRow]]) -> None:
    """SIGKILL to every process that ``select`` picks from the table, until it picks no new one.

    Those that fork while the table is read leave children that it does not show. Whoever has been
    killed forks no more, so there are fewer at every look.
    """
    killed: set[int] = set()
    deadline = Deadline(KILL_SECONDS)
    while not deadline.passed():
        alive = {row.pid for row in select(process_table()) if row.state != "Z"} - killed
        if not alive:
            return
        for pid in alive:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends (Linux).

    Leaves at once where ``parent`` is no longer the parent: it had died before the call.
    """
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def set_subreaper(on: bool) -> bool:
    """Become, or cease to be, the new parent of orphaned descendants (Linux).

    Returns what was set before.
    """
    if sys.platform != "linux":
        return False
    before = ctypes.c_int(0)
    _libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def line_buffer_c_stdout() -> None:
    """Have C's ``stdout`` written at each line: a crash or ``_exit`` would lose what it holds."""
    libc = _libc()
    name = "__stdoutp" if sys.platform == "darwin" else "stdout"
    with suppress(ValueError, AttributeError):
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, 1, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
