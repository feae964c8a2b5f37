"""What the time of a stage was spent on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds by name. Of names that are nested the innermost counts, so that the sum is the whole.

    ``times`` is how often each was begun.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.times: dict[str, int] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count what follows under ``name``."""
        self._turn()
        self._running.append(name)
        self.times[name] = self.times.get(name, 0) + 1
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
