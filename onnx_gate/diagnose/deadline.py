"""A budget of seconds."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The budget is spent."""


class Clock:
    """Counts from its making."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Return the seconds that are left, negative when there are none."""
        return self._end - time.monotonic()

    def check(self) -> None:
        """Raise ``OutOfTime`` where the budget is spent."""
        if self.left < 0:
            raise OutOfTime
