"""Trees of files that somebody else made: removed and walked whatever is in them.

A model may leave folders nested deeper than Python recurses, than a path may be long (4,096 bytes)
or than descriptors may be open, with links to elsewhere and folders that are closed. So nothing
here recurses, follows a link, or builds a path: a folder is opened by its name in its parent.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MAX_DEPTH = 64
"""Folders within folders that ``walk`` enters: one descriptor is open for each."""


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class FoundPath:
    """What lies in a walked folder.

    ``parent`` is a descriptor of its folder, open until the next entry is asked for, and ``path``
    the path from the top. ``status`` is its own, not that of what a link leads to. With
    ``too_deep`` it is a folder that is not entered.
    """

    parent: int
    path: PurePosixPath
    status: os.stat_result
    too_deep: bool = False

    @property
    def name(self) -> str:
        """Its name in its folder."""
        return self.path.name

    @property
    def is_file(self) -> bool:
        """Whether it is a plain file."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.status.st_mode)


def walk(top: Path, max_depth: int = MAX_DEPTH) -> Iterator[FoundPath]:
    """Yield all that lies below a folder, each folder before what is in it, sorted by name.

    What cannot be read, or goes meanwhile, is left out; nothing is raised.
    """
    waiting: list[tuple[int, PurePosixPath, list[str]]] = []
    try:
        with suppress(OSError):
            waiting.append(_opened(os.open(top, _FOLDER), PurePosixPath()))
        while waiting:
            folder, path, names = waiting[-1]
            if not names:
                os.close(waiting.pop()[0])
                continue
            name = names.pop()
            with suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                deep = stat.S_ISDIR(status.st_mode) and len(waiting) >= max_depth
                yield FoundPath(folder, path / name, status, deep)
                if stat.S_ISDIR(status.st_mode) and not deep:
                    waiting.append(_opened(os.open(name, _FOLDER, dir_fd=folder), path / name))
    finally:
        for folder, _, _ in waiting:
            os.close(folder)


def size(top: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(entry.status.st_size for entry in walk(top) if entry.is_file)


def remove_tree(path: Path) -> bool:
    """Remove a folder and all that is in it, or a file; return whether nothing is left.

    Never raises. A folder that is not empty is moved up to the top before it is opened, so that
    no more than two folders are ever open and none has a long path.
    """
    with suppress(OSError):
        parent = os.open(path.parent, _FOLDER)
        try:
            _remove(parent, path.name)
        finally:
            os.close(parent)
    return not os.path.lexists(path)


def take_folder(top: Path, parts: Sequence[str], target: Path) -> None:
    """Move the folder ``top``/``parts`` to ``target``, which is not there; raises ``OSError``.

    Whoever owns ``top`` may have put a link in the place of each part: none is followed, so that
    nothing is moved but what lies below ``top``.
    """
    folder = os.open(top, _FOLDER)
    try:
        for part in parts[:-1]:
            outer, folder = folder, os.open(part, _FOLDER, dir_fd=folder)
            os.close(outer)
        os.close(os.open(parts[-1], _FOLDER, dir_fd=folder))
        os.rename(parts[-1], target, src_dir_fd=folder)
    finally:
        os.close(folder)


def remove_entry(entry: FoundPath) -> None:
    """Remove what ``walk`` has come by, a folder with all that is in it; raises ``OSError``."""
    _remove(entry.parent, entry.name)


def plain_files_only(top: Path) -> None:
    """Remove from a folder that another uid filled whatever is neither a file nor a folder.

    An upload of the folder would follow a symbolic link, with the rights of whoever uploads. What
    lies deeper than anything honest goes as well.
    """
    for entry in walk(top):
        if entry.too_deep or not (entry.is_file or entry.is_folder):
            with suppress(OSError):
                remove_entry(entry)


def _opened(folder: int, path: PurePosixPath) -> tuple[int, PurePosixPath, list[str]]:
    try:
        return folder, path, sorted(os.listdir(folder), reverse=True)
    except OSError:
        os.close(folder)
        raise


def _remove(parent: int, name: str) -> None:
    """Remove what is called ``name`` in the folder ``parent``."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    top = _enter(parent, name)
    try:
        fresh = (f".onnx-gate-{number}" for number in itertools.count())
        waiting = _flatten(top, top, fresh)
        while waiting:
            inner = waiting.pop()
            # What cannot go, a mount say, does not keep the rest.
            with suppress(OSError):
                folder = _enter(top, inner)
                try:
                    waiting += _flatten(folder, top, fresh)
                finally:
                    os.close(folder)
                os.rmdir(inner, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _flatten(folder: int, top: int, fresh: Iterator[str]) -> list[str]:
    """Remove what is in a folder, but move its folders to ``top``; return what they are called."""
    moved = []
    for name in os.listdir(folder):
        if _removed(folder, name):
            continue
        if folder == top:
            moved.append(name)
            continue
        target = next(each for each in fresh if not _exists(top, each))
        with suppress(OSError):
            # Moving a folder writes to it, so that it must not be closed.
            os.close(_enter(folder, name))
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(target)
    return moved


def _enter(parent: int, name: str) -> int:
    """Open a folder to read and to change, even if its owner has closed it."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        folder = os.open(name, _FOLDER, dir_fd=parent)
    with suppress(OSError):
        mode = os.fstat(folder).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
    return folder


def _removed(folder: int, name: str) -> bool:
    """Remove a file or an empty folder; return whether there is nothing more to do."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
    return True


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def sha256_of(path: Path | str) -> str:
    """Return the digest of a file, in hexadecimal; raises ``OSError``."""
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()
