"""The command line, from the process's start to its exit status."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from onnx_gate.cli.app import app

_PATIENCE = 5.0  # seconds
_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it


def _stopper() -> Callable[[int, object], None]:
    """Return what a signal calls: it stops the run, and lets nothing disturb the end of it.

    What is finished is written and shown first, in about a second, which an impatient second Ctrl-C
    would lose. Later ones stop again, should Python have dropped the exception in a finaliser.
    """
    stopped = -_PATIENCE

    def stop(number: int, frame: object) -> None:
        nonlocal stopped
        now = time.monotonic()
        if now - stopped < _PATIENCE:
            return
        stopped = now
        with suppress(OSError):
            os.write(2, b"\nonnx-gate: interrupted\n")
        raise KeyboardInterrupt

    return stop


def main() -> None:
    """Run the command line."""
    stop = _stopper()
    for each in (signal.SIGINT, signal.SIGTERM):
        if (
            signal.getsignal(each) is not signal.SIG_IGN
        ):  # as a shell has it for what it runs with &
            signal.signal(each, stop)
    try:
        app()
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            # Python gives handlers of ours up as it shuts down: a late signal would change the status.
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_IGN)
        raise
