"""The folder of a cache: many processes read and write it at once, and any of them may be killed.

A file is there whole or not at all, because it is written under another name and then renamed; what
is read is checked; whatever cannot be read is as good as not there.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from onnx_gate.cache.path_names import digest
from onnx_gate.cache.stored_verdict import (
    MOST_BYTES,
    Head,
    StoredVerdict,
    from_bytes,
    read_head,
    to_bytes,
)
from onnx_gate.report.io import write_bytes

MARKER = "CACHEDIR.TAG"
# The first line is what backup programs look for, see bford.info/cachedir.
MARK = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Verdicts of onnx-gate run. It can be deleted at any time.\n"
)
PER_MODEL = 8
MOST_EXPORTS = 2 << 30
STALE_SECONDS = 3600.0

_TEMPORARY = f".{MARKER}."
_ENTRIES, _EXPORTS = "entries", "exports"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Unusable(Exception):
    """The folder is none of ours, or cannot be used; the message says what it is."""


@dataclass(frozen=True)
class Store:
    """The entries of models, the newest ``PER_MODEL`` of each, and exported files by content."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Return the store in ``folder``, made where there is none; raises ``Unusable``."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            marker = folder / MARKER
            if marker.is_symlink() or (marker.exists() and not marker.is_file()):
                raise Unusable(f"its {MARKER} is not a file")
            if not marker.exists():
                others = [name for name in os.listdir(folder) if not name.startswith(_TEMPORARY)]
                # Another process may have made it meanwhile.
                if others and not marker.exists():
                    raise Unusable(
                        f"it holds other files ({sorted(others)[0]}) and was not made by onnx-gate"
                    )
                write_bytes(marker, MARK.encode())
            elif marker.read_bytes() != MARK.encode():
                raise Unusable(f"its {MARKER} is another program's")
            for name in (_ENTRIES, _EXPORTS):
                if (folder / name).is_symlink():
                    raise Unusable(f"{name} in it is a symbolic link")
                (folder / name).mkdir(exist_ok=True)
        except OSError as error:
            raise Unusable(error.strerror or str(error)) from error
        return cls(folder)

    def heads(self, model: str) -> list[tuple[Path, Head]]:
        """Return the entries of a model, the newest first, by their first lines."""
        heads = []
        for path in self._paths(model):
            with suppress(OSError):
                head = read_head(_read(path, 1024))
                if head is not None:
                    heads.append((path, head))
        return heads

    def read(self, path: Path) -> StoredVerdict | None:
        """Return an entry; ``None`` where it is gone, damaged or not ours."""
        try:
            return from_bytes(_read(path, 2 * MOST_BYTES))
        except OSError:
            return None

    def touch(self, path: Path) -> None:
        """Make an entry the newest: it has been of use."""
        with suppress(OSError):
            os.utime(path)

    def write(self, model: str, entry: StoredVerdict) -> None:
        """Add an entry, and drop the oldest beyond ``PER_MODEL``.

        Raises ``OSError`` where that is impossible, and ``ValueError`` where it is too large.
        """
        data = to_bytes(entry)
        folder = self._folder(model)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / f"{hashlib.sha256(data).hexdigest()}.entry", data)
        for path in self._paths(model)[PER_MODEL:]:
            path.unlink(missing_ok=True)

    def keep_export(self, file: Path) -> str:
        """Store a file by its content and return the digest; raises ``OSError``."""
        handle, temporary = tempfile.mkstemp(dir=self.folder / _EXPORTS, prefix=".")
        try:
            hashed = hashlib.sha256()
            with os.fdopen(handle, "wb") as target, open(file, "rb") as source:
                while block := source.read(1 << 20):
                    hashed.update(block)
                    target.write(block)
            os.chmod(temporary, 0o644)
            name = hashed.hexdigest()
            os.replace(temporary, self.folder / _EXPORTS / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return name

    def restore_export(self, name: str, target: Path) -> bool:
        """Copy a stored file to ``target``; false where it is gone or damaged."""
        if not _DIGEST.fullmatch(name):
            return False
        path = self.folder / _EXPORTS / name
        hashed = hashlib.sha256()
        try:
            with _open(path) as source, open(target, "wb") as copy:
                while block := source.read(1 << 20):
                    hashed.update(block)
                    copy.write(block)
        except OSError:
            return False
        if hashed.hexdigest() != name:
            with suppress(OSError):
                path.unlink()
            return False
        with suppress(OSError):
            os.utime(path)
        return True

    def prune(self) -> None:
        """Drop what killed writers left, and the exports that were not of use for longest."""
        now = time.time()
        for folder, pattern in (
            (self.folder, f"{_TEMPORARY}*"),
            (self.folder / _EXPORTS, ".*"),
            *((folder, ".*") for folder in self._folders()),
        ):
            with suppress(OSError):
                for path in folder.glob(pattern):
                    with suppress(OSError):
                        if now - path.lstat().st_mtime > STALE_SECONDS:
                            path.unlink()
        exports = []
        with suppress(OSError):
            for path in (self.folder / _EXPORTS).iterdir():
                with suppress(OSError):
                    status = path.lstat()
                    exports.append((status.st_mtime, status.st_size, path))
        left = MOST_EXPORTS
        for _, size, path in sorted(exports, reverse=True):
            left -= size
            if left < 0:
                with suppress(OSError):
                    path.unlink()

    def _folder(self, model: str) -> Path:
        return self.folder / _ENTRIES / digest(model)[:32]

    def _folders(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from (self.folder / _ENTRIES).iterdir()

    def _paths(self, model: str) -> list[Path]:
        entries = []
        with suppress(OSError):
            for path in self._folder(model).iterdir():
                with suppress(OSError):
                    if path.suffix == ".entry":
                        entries.append((path.lstat().st_mtime_ns, path.name, path))
        return [path for _, _, path in sorted(entries, reverse=True)]


def _open(path: Path) -> BinaryIO:
    # Neither a link to somewhere else nor a pipe that never answers.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags), "rb")


def _read(path: Path, most: int) -> bytes:
    with _open(path) as file:
        data: bytes = file.read(most)
        return data
