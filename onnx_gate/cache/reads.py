"""What a model's process reads: recorded in the process itself, by Python's audit events.

An audit hook sees whatever Python opens, lists and imports. Files that native code opens by itself
(safetensors, ONNX Runtime) it does not see: the gate watches for those, see ``watch``.
"""

from __future__ import annotations

import importlib.machinery
import os
import site
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_gate.cache.path_names import KERNEL, is_bytecode, source_of, within
from onnx_gate.workers.child import LOOKED, OWN

# Before it is replaced by one that notes what is asked for.
_lstat = os.lstat

_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
# Where a folder is listed from to find a module, or the metadata of a package.
_IMPORT_SYSTEM = (
    "<frozen importlib",
    "<frozen zipimport",
    os.path.dirname(importlib.__file__) + "/",
)
_IMPORT = importlib.machinery.SourceFileLoader.get_code.__code__

VOLATILE = (
    *("GITHUB_", "RUNNER_", "ACTIONS_", "INPUT_", "SSH_", "XDG_SESSION", "INVOCATION_ID"),
    *("PYTEST_", "TERM", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "LS_COLORS", "HOME"),
    *("TMPDIR", "TEMP", "TMP", "JOURNAL_STREAM", "HOSTNAME", "_"),
)
"""Beginnings of the names of variables that change with every job and say nothing of a model."""


class AccessRecorder:
    """Everything that this process has looked at since ``start``; cannot be stopped again."""

    def __init__(self) -> None:
        self._opened: set[str] = set()
        self._made: set[str] = set()
        self._listed: set[str] = set()
        self._searched: set[str] = set()
        self._modules: set[str] = set()
        self._probed: set[str] = set()
        self._variables: set[str] = set()
        self._network = False
        self._lost = False
        self._own = False

    def start(self) -> None:
        """Install the hook, and note the variables and the paths that are asked about."""
        handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._open,
            "os.listdir": self._list,
            "os.scandir": self._list,
            "import": self._import,
            "ctypes.dlopen": self._open,
            "os.mkdir": self._make,
            "os.rename": self._move,
            "sqlite3.connect": self._open,
            OWN: self._pause,
            **dict.fromkeys(_NETWORK, self._connect),
        }

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            handler = handlers.get(event)
            if handler is not None:
                try:
                    handler(arguments)
                except Exception:
                    self._lost = True

        self._watch_probes()
        self._watch_variables()
        self._watch_safetensors()
        sys.addaudithook(hook)

    def lose(self) -> None:
        """Note that something is read which nobody sees."""
        self._lost = True

    def add(self, paths: Iterable[str]) -> None:
        """Note files that are read by other means."""
        self._opened.update(os.path.abspath(path) for path in paths)

    def message(self, workspace: str, own: Iterable[str] = ()) -> dict[str, Any]:
        """Return what was seen, as JSON data; every path is absolute.

        Left out is what lies in the interpreter's folders, whose packages are known by version,
        and in the folders ``own`` of this run. So is what this process has made outside of the
        ``workspace``: in a temporary folder, say, where what others have made does count.
        """
        for module in list(sys.modules.values()):
            with suppress(Exception):
                file = module.__file__
                if file is not None and os.path.isabs(file):
                    self._opened.add(os.path.normpath(file))
        self._searched.update(os.path.abspath(path or ".") for path in sys.path)
        passed = (*installed(workspace), *map(os.path.abspath, own), *KERNEL)
        inside = (workspace, os.path.realpath(workspace))
        groups = {
            "opened": self._opened,
            "listed": self._listed,
            "searched": self._searched,
            "probed": self._probed,
        }
        return {
            **{
                name: sorted(
                    _text(
                        path
                        for path in paths
                        if not within(path, passed)
                        and (within(path, inside) or not self._is_made(path))
                    )
                )
                for name, paths in groups.items()
            },
            "modules": sorted(_text(self._modules)),
            "variables": sorted(_text(self._variables)),
            "network": self._network,
            "lost": self._lost,
        }

    def _note(self, known: set[str], what: str) -> None:
        if not self._own and what not in known:
            known.add(what)
            sys.audit(LOOKED)

    def _pause(self, arguments: tuple[Any, ...]) -> None:
        self._own = bool(arguments[0])

    def _open(self, arguments: tuple[Any, ...]) -> None:
        path = _path(arguments[0])
        if path is None:
            return
        flags = arguments[2] if len(arguments) > 2 else 0
        if isinstance(flags, int):
            if flags & os.O_TRUNC or (flags & os.O_CREAT and not _is_there(path)):
                self._made.add(path)
            if flags & os.O_ACCMODE == os.O_WRONLY:
                return
        # A source's bytecode that its import reads; whoever else reads it reads any file.
        caller = sys._getframe(2).f_back
        imports = caller is not None and caller.f_code is _IMPORT
        self._note(self._opened, source_of(path) if imports and is_bytecode(path) else path)

    def _make(self, arguments: tuple[Any, ...]) -> None:
        path = _path(arguments[0])
        # An error follows where the folder is there already, and it is not this process's.
        if path is not None and not _is_there(path):
            self._made.add(path)

    def _move(self, arguments: tuple[Any, ...]) -> None:
        source, target = _path(arguments[0]), _path(arguments[1])
        if source is not None and target is not None and self._is_made(source):
            self._made.add(target)

    def _is_made(self, path: str) -> bool:
        """Return whether this process has made a file, or a folder around it."""
        while path not in self._made:
            above = os.path.dirname(path)
            if above == path:
                return False
            path = above
        return True

    def _list(self, arguments: tuple[Any, ...]) -> None:
        path = _path("." if arguments[0] is None else arguments[0])
        if path is None:
            return
        caller = sys._getframe(2).f_code.co_filename
        self._note(self._searched if caller.startswith(_IMPORT_SYSTEM) else self._listed, path)

    def _import(self, arguments: tuple[Any, ...]) -> None:
        name = arguments[0]
        if isinstance(name, str):
            self._note(self._modules, name.rpartition(".")[2])

    def _connect(self, arguments: tuple[Any, ...]) -> None:
        address = arguments[1] if len(arguments) > 1 else None
        # The address of a Unix socket is a path; a look-up by name has no socket before it.
        if isinstance(address, tuple) or not hasattr(arguments[0], "fileno"):
            self._network = True
            sys.audit(LOOKED)

    def _watch_probes(self) -> None:
        """Note paths whose existence is asked for: no audit event says so."""
        for name in ("stat", "lstat", "access"):
            original = getattr(os, name)
            wrapped = self._noting(original)
            setattr(os, name, wrapped)
            for known in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
                if original in known:
                    known.add(wrapped)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def noting(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, (str, bytes, os.PathLike)):
                with suppress(Exception):
                    probed = _path(path)
                    if probed is not None:
                        self._note(self._probed, probed)
            return original(path, *arguments, **options)

        noting.__name__ = noting.__qualname__ = original.__name__
        return noting

    def _watch_safetensors(self) -> None:
        """Note weights that safetensors opens by itself, so that they count for this model alone."""
        with suppress(ImportError):
            import safetensors
            import safetensors.torch

            original = safetensors.safe_open

            def safe_open(filename: Any, *arguments: Any, **options: Any) -> Any:
                with suppress(Exception):
                    if (path := _path(filename)) is not None:
                        self._note(self._opened, path)
                return original(filename, *arguments, **options)

            vars(safetensors)["safe_open"] = safe_open
            vars(safetensors.torch)["safe_open"] = safe_open

    def _watch_variables(self) -> None:
        """Note variables that are asked for by name; a copy of all of them asks for none."""
        seen, note = self._variables, self._note
        copied: deque[Any] = deque()
        kind = type(os.environ)

        class Environ(kind):  # type: ignore[misc, valid-type]
            def __iter__(self) -> Iterator[Any]:
                copied.clear()
                for key in super().__iter__():
                    copied.append(key)
                    yield key

            def __getitem__(self, key: Any) -> Any:
                if copied and copied[0] == key:
                    copied.popleft()
                else:
                    copied.clear()
                    if isinstance(key, str) and not key.startswith(VOLATILE):
                        note(seen, key)
                return super().__getitem__(key)

        Environ.__name__ = Environ.__qualname__ = kind.__name__
        os.environ.__class__ = Environ


def installed(workspace: str) -> set[str]:
    """Return where the interpreter, its packages and this one lie.

    Never a folder around the ``workspace``: what lies in /usr/src is not installed in /usr.
    """
    paths = sysconfig.get_paths()
    folders = {sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1])}
    folders |= {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    with suppress(Exception):
        folders |= {*site.getsitepackages(), site.getusersitepackages()}
    folders |= set(map(os.path.realpath, folders))
    inner = os.path.realpath(workspace)
    return {folder for folder in folders if folder and not within(inner, (folder,))}


def _is_there(path: str) -> bool:
    try:
        _lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _path(value: Any) -> str | None:
    """Return an absolute path; ``None`` for a descriptor, and for the program itself."""
    if value is None or isinstance(value, int):
        return None
    text = os.fsdecode(value)
    return os.path.normpath(text if text.startswith("/") else os.path.join(os.getcwd(), text))


def _text(paths: Iterable[str]) -> Iterable[str]:
    """Leave out what UTF-8 cannot hold: it never equals anything afterwards."""
    return (path.encode("utf-8", "backslashreplace").decode() for path in paths)
