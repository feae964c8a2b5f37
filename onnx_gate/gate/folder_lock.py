"""A folder that one run alone writes to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onnx_gate.errors import UserError


@contextmanager
def alone_in(folder: Path, option: str) -> Iterator[None]:
    """Hold a folder that is there against other runs; raises ``UserError`` where one has it.

    ``option`` is what the folder was named by.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{option} {folder}: another run is writing there; wait for it, or name another folder"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_UN)  # forks hold it, too
        os.close(opened)
