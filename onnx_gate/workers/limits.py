"""What a worker may hold: of memory, by what the machine and its cgroups have, and of processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from onnx_gate.text import binary_size
from onnx_gate.workers.process import ProcessRow
from onnx_gate.workers.running import Running
from onnx_gate.workers.task import End

_CORES = os.cpu_count() or 1

MAX_PROCESSES = 64 + 2 * _CORES
"""Processes of one worker's family at once: loaders of data and compilers start one for each core."""

CROWD = 4 * _CORES
"""Processes of one family that want to run at the same moment, from which on others are kept waiting."""

_SHARE = 0.85


def default_memory_limit(total: int | None = None) -> int:
    """Bytes a task may use where it names no limit: 85 % of ``total``, or of what there is now."""
    return int(_SHARE * (available_memory() if total is None else total))


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can be allocated without swapping, within the limits of all enclosing cgroups.

    ``root`` is where ``/proc`` and ``/sys`` are looked for.
    """
    rooms = [psutil.virtual_memory().available, *_cgroup_rooms(root)]
    return max(0, min(rooms))


def oom_kills(root: Path = Path("/")) -> int:
    """How many processes the kernel has killed for want of memory, as far as it says so."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _cgroup_rooms(root: Path) -> Iterator[int]:
    """What each enclosing cgroup, version 2 or 1, still has room for."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, limit, usage = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        # In a container the path may be the host's: then only the top exists, and is our own.
        for folder in (inner, *inner.parents):
            room = _room(top / folder, limit, usage)
            if room is not None:
                yield room


def _room(folder: Path, limit: str, usage: str) -> int | None:
    maximum, current = _number(folder / limit), _number(folder / usage)
    if maximum is None or current is None:
        return None
    return maximum - max(0, current - _reclaimable(folder / "memory.stat"))


def _number(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def _reclaimable(stat: Path) -> int:
    """File cache that the kernel gives back before it refuses memory.

    Of what is in active use half counts, as in the kernel's own estimate for the machine: taking
    all of it back would cost more time than it saves.
    """
    with suppress(OSError, ValueError):
        values = dict(line.split() for line in stat.read_text().splitlines())

        def value(name: str) -> int:
            return int(values.get(f"total_{name}", values.get(name, "0")))

        return value("inactive_file") + value("active_file") // 2
    return 0


def exceeded(worker: Running, family: Sequence[ProcessRow], now: float) -> tuple[End, str] | None:
    """Return the end of a worker that has taken more than it may, and a sentence about it."""
    task = worker.task
    if len(family) > MAX_PROCESSES:
        return "processes", f"more than {MAX_PROCESSES} processes at once"
    if worker.used > worker.limit:
        limit, used = binary_size(worker.limit), binary_size(worker.used)
        return "memory", f"over its memory limit of {limit} ({used} in use)"
    if now - worker.started > task.timeout:
        return "timeout", f"over its time limit of {task.timeout:g} s"
    if task.processor is not None and sum(row.seconds for row in family) > task.processor:
        return "timeout", f"over its limit of {task.processor:g} s of processor time"
    return None
