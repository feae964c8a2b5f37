"""A budget of seconds: the only way to count down here."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The budget is spent."""


class Deadline:
    """So many seconds from its making."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Return the seconds that are left, 0 when there are none."""
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> bool:
        """Return whether there are none left."""
        return time.monotonic() > self._end

    def check(self) -> None:
        """Raise ``OutOfTime`` where the budget is spent."""
        if self.passed():
            raise OutOfTime
