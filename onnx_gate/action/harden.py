"""Making the process that holds the token unreadable to every other (Linux)."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Close ``/proc/PID`` of this process to others, debuggers included, and leave no core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
