"""Whether git tracks anything in a folder, by the index itself: git need not be installed."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

_HEADER = struct.Struct(">4sII")
_FIXED = 62  # bytes of an entry before its path, by gitformat-index(5)
_EXTENDED = 0x4000
_MODE, _ID, _SUBMODULE = 24, 40, 0o160000


def tracked(folder: Path, *, unknown: bool = False) -> bool:
    """Return whether a commit can bring anything into ``folder``.

    It can where the index of the repository around it has a file below it. A submodule is an entry
    without anything below it, whose files another repository has: it counts where it is the folder
    itself, or one around it. So does a folder that is a repository of its own, as a submodule is
    that has been checked out, and an index that cannot be read. Where there is no repository at all
    (a checkout without git downloads an archive of the commit) the answer is ``unknown``.
    """
    folder = folder.resolve()
    if os.path.lexists(folder / ".git"):
        return True
    for root in folder.parents:
        git = root / ".git"
        if git.exists():
            index = directory_of(git) / "index"
            name = os.fsencode(folder.relative_to(root).as_posix()) + b"/"
            try:
                data = index.read_bytes()
            except FileNotFoundError:
                return False
            except OSError:
                return True
            try:
                return any(_overlap(path + b"/", name) for path, _, _ in _entries(data))
            except (struct.error, ValueError):
                return True
    return unknown


def _overlap(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)


def directory_of(git: Path) -> Path:
    """Return where a repository's data is; in a worktree ``.git`` is a file that names it."""
    if git.is_dir():
        return git
    try:
        _, _, target = git.read_text(encoding="utf-8").partition("gitdir:")
    except (OSError, UnicodeDecodeError):
        return git
    return (git.parent / target.strip()).resolve()


def submodules(git: Path) -> dict[str, str]:
    """Return the commit that a repository names for each of its submodules, by its path."""
    try:
        data = (directory_of(git) / "index").read_bytes()
        return {
            os.fsdecode(path): id.hex() for path, mode, id in _entries(data) if mode == _SUBMODULE
        }
    except (OSError, struct.error, ValueError):
        return {}


def _entries(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield path, mode and object of every entry."""
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        raise ValueError("another format than version 2 or 3 of git's index")
    offset = _HEADER.size
    for _ in range(count):
        (flags,) = struct.unpack_from(">H", data, offset + _FIXED - 2)
        begin = offset + _FIXED + (2 if flags & _EXTENDED else 0)
        end = data.index(b"\0", begin)
        (mode,) = struct.unpack_from(">I", data, offset + _MODE)
        yield data[begin:end], mode, data[offset + _ID : offset + _FIXED - 2]
        # One to eight zero bytes, so that the next entry begins at a multiple of eight.
        offset += (end - offset + 8) // 8 * 8
