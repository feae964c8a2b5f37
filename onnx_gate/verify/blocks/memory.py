"""Memory that nobody uses, given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Return freed memory to the system, where the allocator keeps it for itself (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
