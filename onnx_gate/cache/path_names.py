"""Names for paths that mean the same in another checkout, and what lies at a path right now."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ABSENT = "absent"
FOLDER = "folder"
CLOSED = "closed"
MOST_BYTES = 1 << 40
KERNEL = ("/proc", "/sys", "/dev")

_BLOCK = 1 << 20
_UNLISTED = (".git", "__pycache__")
_BYTECODE = "__pycache__"
_HEADER = 16
_DISTRIBUTIONS = (".dist-info", ".egg-info", ".egg", ".egg-link")


@dataclass(frozen=True)
class PathNames:
    """Where a run takes place: ``workspace`` is the manifest's folder, all paths are resolved.

    ``own`` are folders that this run writes to (reports, logs, the cache). With ``shared`` false
    every file is looked at; else only those that every user may read, as models named them.
    """

    workspace: str
    root: str
    home: str
    own: tuple[str, ...] = ()
    shared: bool = False

    def name(self, path: str) -> str | None:
        """Return the name of an absolute path; ``None`` for what is no business of a cache."""
        if within(path, self.own) or ".git" in path.split("/"):
            return None
        if within(path, (self.root,)):
            return os.path.relpath(path, self.workspace)
        # Whoever makes a temporary file looks at the folder, in which names come and go.
        if path in (tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir())):
            return None
        if within(path, KERNEL):
            return None
        if len(self.home) > 1 and within(path, (self.home,)):
            return "~/" + os.path.relpath(path, self.home)
        return path

    def path(self, name: str) -> str:
        """Return the absolute path that a name stands for here."""
        if name.startswith("~/"):
            return os.path.join(self.home, name[2:])
        return os.path.normpath(os.path.join(self.workspace, name))


def find_names(
    workspace: Path, own: Iterable[Path], home: str, *, shared: bool = False
) -> PathNames:
    """Return the names of paths of a run whose manifest is in ``workspace``.

    The repository around it is found by its ``.git``.
    """
    folder = workspace.resolve()
    root = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder)
    return PathNames(
        workspace=str(folder),
        root=str(root),
        home=os.path.realpath(home) if home else "",
        own=tuple(str(path.resolve()) for path in own),
        shared=shared,
    )


@dataclass
class State:
    """What is there now, looked at once: contents as digests.

    ``variables`` is the environment that models see.
    """

    names: PathNames
    variables: Mapping[str, str]
    _known: dict[tuple[str, ...], str] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """Return the SHA-256 of a file's content, or what else is there.

        To a source belongs the bytecode that Python runs in its place whatever it says.
        """
        return self._once(("file", name), lambda: self._with_bytecode(name))

    def listing(self, name: str) -> str:
        """Return a digest of the names in a folder."""
        return self._once(("listing", name), lambda: self._names(name, None))

    def search(self, name: str, modules: Collection[str]) -> str:
        """Return a digest of what in a folder can be imported under one of some names."""
        return self._names(name, modules)

    def probe(self, name: str) -> str:
        """Return whether a file, a folder or nothing is there."""
        return self._once(("probe", name), lambda: self._kind(name))

    def variable(self, name: str) -> str:
        """Return a digest of a variable of the environment."""
        value = self.variables.get(name)
        return ABSENT if value is None else digest(f"{name}={value}")

    def changed_since(self, name: str, moment: int) -> bool:
        """Return whether a file has changed after a ``moment``, in nanoseconds of the wall clock."""
        try:
            return os.stat(self.names.path(name)).st_ctime_ns >= moment
        except OSError:
            return False

    def _once(self, key: tuple[str, ...], find: Callable[[], str]) -> str:
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def _kind(self, name: str) -> str:
        try:
            mode = os.stat(self.names.path(name)).st_mode
        except (OSError, ValueError):
            return ABSENT
        return FOLDER if stat.S_ISDIR(mode) else "file"

    def _with_bytecode(self, name: str) -> str:
        found, path = self._file(name), self.names.path(name)
        if not path.endswith(".py"):
            return found
        folder, entries = os.path.join(os.path.dirname(path), _BYTECODE), list[str]()
        with suppress(OSError):
            entries = sorted(os.listdir(folder))
        files = [os.path.join(folder, entry) for entry in entries]
        put = [file for file in files if source_of(file) == path and not _by_time(file)]
        if not put:
            return found
        return digest("\0".join((found, *(self._file(file) for file in put))))

    def _file(self, name: str) -> str:
        path = self.names.path(name)
        try:
            # Somebody else chose the name: a pipe would be waited for, a device never end.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except (OSError, ValueError) as error:
            return CLOSED if isinstance(error, PermissionError) else ABSENT
        with os.fdopen(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                return FOLDER
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                return CLOSED
            if self.names.shared and not status.st_mode & stat.S_IROTH:
                return CLOSED
            hashed = hashlib.sha256()
            with suppress(OSError):
                while block := file.read(_BLOCK):
                    hashed.update(block)
                return hashed.hexdigest()
        return CLOSED

    def _names(self, name: str, modules: Collection[str] | None) -> str:
        path = self.names.path(name)
        try:
            entries = sorted(os.listdir(path))
        except (OSError, ValueError):
            return ABSENT
        seen = [
            entry
            for entry in entries
            if entry not in _UNLISTED
            and not (os.path.basename(path) == _BYTECODE and is_bytecode(os.path.join(path, entry)))
            and not within(os.path.join(path, entry), self.names.own)
        ]
        if modules is not None:
            seen = [
                entry
                for entry in seen
                if entry.partition(".")[0] in modules or entry.endswith(_DISTRIBUTIONS)
            ]
        return digest("\0".join(seen))


def source_of(path: str) -> str:
    """Return the source that Python keeps bytecode of under a path; empty for any other path."""
    with suppress(ValueError, NotImplementedError):
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else ""
    return ""


def is_bytecode(path: str) -> bool:
    """Return whether a path is where Python keeps the bytecode of a source that is there.

    The source then says all, but for what ``State.file`` adds to it.
    """
    source = source_of(path)
    return bool(source) and os.path.isfile(source)


def _by_time(path: str) -> bool:
    """Return whether bytecode is as Python itself writes it, and goes by the source's time.

    No commit knows the time of a checkout. Bytecode by hash Python runs in every one, some unchecked.
    """
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(fd, "rb", buffering=0) as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                header = file.read(_HEADER)
                return len(header) == _HEADER and not any(header[4:8])
    return False


def digest(data: str | bytes) -> str:
    """Return the SHA-256 of a text or of bytes, in hexadecimal."""
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()


def within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of ``folders``, or below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
