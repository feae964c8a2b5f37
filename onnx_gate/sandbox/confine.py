"""One model's process among others: it may write only where no other model looks."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

from onnx_gate.sandbox import landlock


@dataclass(frozen=True)
class Confinement:
    """What a model's process may open, within what the sandbox allows all of them.

    Paths as in ``Policy``; ``home`` and ``temporary`` are the model's own folders.
    """

    listable: tuple[str, ...]
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    home: str
    temporary: str
    landlock: bool

    def enter(self) -> None:
        """Confine this process, which has one thread yet; raises ``OSError``.

        A Landlock domain of its own also keeps it from signalling the others' processes, where
        the kernel's is new enough (ABI 6).
        """
        os.environ["HOME"] = self.home
        os.environ["TMPDIR"] = self.temporary
        tempfile.tempdir = None
        if self.landlock:
            writable = (*self.writable, self.home, self.temporary)
            landlock.restrict(self.listable, self.readable, writable, network=False)
