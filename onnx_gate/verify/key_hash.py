"""What tells arrays, and all else that decides, from what was there in another run."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


class KeyHash:
    """The SHA-256 of values, each told from its neighbours by its kind and length."""

    def __init__(self) -> None:
        self._hashed = hashlib.sha256()

    def add(self, *values: Any) -> None:
        """Take in arrays and bytes by content, and everything else as it is written in Python."""
        for value in values:
            if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU":
                kind, data = f"{value.dtype}{value.shape}", np.ascontiguousarray(value).tobytes()
            elif isinstance(value, np.ndarray):
                kind, data = f"{value.dtype}{value.shape}", repr(value.tolist()).encode()
            elif isinstance(value, bytes):
                kind, data = "bytes", value
            else:
                kind, data = "repr", repr(value).encode("utf-8", "backslashreplace")
            self._hashed.update(f"{kind} {len(data)} ".encode())
            self._hashed.update(data)

    @property
    def hex(self) -> str:
        """The digest so far."""
        return self._hashed.hexdigest()
