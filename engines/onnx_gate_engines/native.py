"""What native code writes to the process's own streams, where it says so nowhere else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stderr_and_stdout() -> Iterator[Callable[[], str]]:
    """Yield what gives the text written meanwhile, once the block has ended; it is in the log too.

    Of a process of an engine only: it turns the streams of the whole process.
    """
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(1), os.dup(2)]
        text = b""
        try:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
            yield lambda: text.decode(errors="replace")
        finally:
            for stream, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, stream)
                os.close(copy)
            file.seek(0)
            text = file.read()
            os.write(2, text)
