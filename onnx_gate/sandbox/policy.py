"""What a sandboxed process may do: plain data, given to the program that enters it as a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

NOBODY = 65534
INSTALLER = 65533
"""Who pip runs as: what it starts can open nothing of the models', nor be mistaken for one."""

SERVICES = 65532
"""Who a runtime's services run as, such as a browser: no model can signal them or read their files."""

PROCESSES = 4096
"""Processes and threads of one user: where nothing else stops a fork bomb, the machine lives on."""

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")


@dataclass(frozen=True)
class Policy:
    """Who a process becomes and what it may open.

    ``uid`` is null where it stays who it is, ``gid`` its group (null: of the uid's number).
    ``listable``, ``readable`` and ``writable`` are paths; a folder stands for all beneath it.
    ``devices`` are writable, too. ``landlock`` and ``seccomp`` say what to install; ``network``
    whether sockets to the internet stay possible. ``environment`` is the whole of it.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    listable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    uid: int | None = NOBODY
    gid: int | None = None
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
