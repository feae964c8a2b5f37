"""What the end of a worker means that nobody ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from onnx_gate.workers.forkserver import FAILED, WorkerEvent
from onnx_gate.workers.task import End


def outcome_of_exit(
    report: WorkerEvent, *, spoke: bool, complete: bool, starved: bool
) -> tuple[End, str]:
    """Return how a worker ended, and one sentence about it.

    ``spoke`` says that it sent a result, ``complete`` that it said all it had to say, ``starved``
    that the kernel has killed somebody for want of memory while it lived.
    """
    if report.what == FAILED:
        return "lost", f"no process could be started for it: {os.strerror(report.value)}"
    code = os.waitstatus_to_exitcode(report.value)
    if code < 0:
        name = _signal_name(-code)
        if name == "SIGKILL" and starved:
            return "memory", "killed by the kernel, which had no memory left"
        hint = ", by itself or by the kernel for want of memory" if name == "SIGKILL" else ""
        return "signal", f"killed by {name}{hint}"
    if code == 0 and complete:
        return "done", ""
    when = "before the end of its work" if spoke else "before a result"
    return "exit", f"exit status {code} {when}"


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
