"""Which files of a repository are opened while models run: the kernel says so (Linux).

Native code opens files that Python's audit events do not show. Whoever opened a file is not told,
so that it counts for every model that was running then, unless Python's events show whose it is, and
are believed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress

MOST_BYTES = 1 << 18

_IN_OPEN, _IN_ISDIR, _IN_Q_OVERFLOW = 0x20, 0x40000000, 0x4000
_EVENT = struct.Struct("iIII")
_SKIPPED = frozenset({".git", "node_modules", ".mypy_cache", ".ruff_cache"})


class FolderWatch:
    """Watches every folder below ``root`` from now on, but for those of ``apart``.

    ``complete`` is false where it cannot: on other systems, and where there are too many folders.
    Start and end of every model have to be told, in the order in which they happen.
    """

    MOST_FOLDERS = 20_000

    def __init__(self, root: str, apart: tuple[str, ...]) -> None:
        self.complete = False
        self._fd = -1
        self._folders: dict[int, str] = {}
        self._active: dict[str, set[str]] = {}
        self._lost: set[str] = set()
        if sys.platform != "linux":
            return
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            return
        for number, folder in enumerate(_folders(root, apart)):
            descriptor = libc.inotify_add_watch(self._fd, os.fsencode(folder), _IN_OPEN)
            if number >= self.MOST_FOLDERS or (
                descriptor < 0 and ctypes.get_errno() == errno.ENOSPC
            ):
                self.close()
                return
            if descriptor >= 0:
                self._folders[descriptor] = folder
        self.complete = True

    def start(self, name: str) -> None:
        """A model's process runs now, and may have since the last call of any kind."""
        self._active.setdefault(name, set())
        self.read()

    def seen(self, name: str) -> frozenset[str]:
        """Return the files opened so far while a model runs, by whomever."""
        self.read()
        return frozenset(self._active.get(name, ()))

    def end(self, name: str) -> frozenset[str]:
        """Return the files opened while a model ran, by whomever."""
        self.read()
        return frozenset(self._active.pop(name, ()))

    def lost(self, name: str) -> bool:
        """Return whether something was missed while a model ran."""
        return not self.complete or name in self._lost

    def read(self) -> None:
        """Take in what has happened."""
        while self._fd >= 0:
            try:
                data = os.read(self._fd, MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lost.update(self._active)
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        offset = 0
        opened = set()
        while offset < len(data):
            descriptor, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            name = data[offset : offset + length].rstrip(b"\0")
            offset += length
            if mask & _IN_Q_OVERFLOW:
                self._lost.update(self._active)
            elif name and not mask & _IN_ISDIR and descriptor in self._folders:
                opened.add(os.path.join(self._folders[descriptor], os.fsdecode(name)))
        for files in self._active.values():
            files |= opened

    def close(self) -> None:
        """Watch no longer."""
        self.complete = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _folders(root: str, apart: tuple[str, ...]) -> Iterator[str]:
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if folder in apart:
            continue
        entries: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(folder) as scanned:
            entries = list(scanned)
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        yield folder
        waiting += [
            entry.path
            for entry in entries
            if entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False)
        ]
