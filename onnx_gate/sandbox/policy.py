"""What a sandboxed process may do: plain data, given to the program that enters it as a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

NOBODY = 65534

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")
_MOST_FOLDERS = 20_000


@dataclass(frozen=True)
class Policy:
    """Who a process becomes and what it may open.

    ``uid`` is null where it stays who it is. ``listable``, ``readable`` and ``writable`` are
    paths; a folder stands for all beneath it. ``devices`` are writable, too. ``landlock`` and
    ``seccomp`` say what to install; ``network`` whether sockets to the internet stay possible.
    ``environment`` is the whole of it.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    listable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    uid: int | None = NOBODY
    landlock: bool = True
    seccomp: bool = True
    network: bool = False

    def to_json(self) -> str:
        """Return the policy as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """Return what ``to_json`` wrote."""
        values = json.loads(text)
        for name in ("listable", "readable", "writable", "devices"):
            values[name] = tuple(values[name])
        return cls(**values)

    def command(self, file: Path) -> tuple[str, ...]:
        """Write the policy to ``file`` and return what stands before a command to sandbox it."""
        file.write_text(self.to_json(), encoding="utf-8")
        return (sys.executable, "-I", "-m", "onnx_gate.sandbox.enter", str(file))


def runtime_paths() -> tuple[str, ...]:
    """Return what any Python program of this machine reads: the system, this interpreter, us."""
    ours = Path(__file__).resolve().parent.parent
    # A dangling or cyclic link must not stop the list.
    prefixes = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    return (*SYSTEM, *sorted(prefixes), str(ours))


def without_git(folder: Path) -> tuple[str, ...]:
    """Return paths that cover ``folder`` but for every ``.git`` in it, and no symbolic link.

    Where there are too many folders to look through, only the top ``.git`` is left out.
    """
    budget = iter(range(_MOST_FOLDERS))
    covered = _covered(str(folder), budget)
    return (str(folder),) if covered is None else tuple(covered)


def _covered(folder: str, budget: Iterator[int]) -> list[str] | None:
    """Paths that cover the folder; null where the folder itself does, having no ``.git``."""
    if next(budget, None) is None:
        return None
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return None
    parts: list[str] = []
    split = False
    for entry in entries:
        if entry.name == ".git":
            split = True
        elif entry.is_symlink():
            continue
        elif entry.is_dir(follow_symlinks=False):
            below = _covered(entry.path, budget)
            split = split or below is not None
            parts += [entry.path] if below is None else below
        else:
            parts.append(entry.path)
    return parts if split else None
