"""Time that passes only while everybody waits, so that races come out the same every time."""

from __future__ import annotations

import heapq
import threading


class VirtualTime:
    """A clock for ``actors`` threads, of which exactly one runs at any moment.

    Every actor begins with a ``sleep`` and ends with ``leave``; a server that sleeps on behalf of
    an actor that waits for its answer counts as that actor.
    """

    def __init__(self, actors: int) -> None:
        self._lock = threading.Lock()
        self._running = actors
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._count = 0
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        woken = threading.Event()
        with self._lock:
            self._count += 1
            heapq.heappush(self._waiting, (self._now + seconds, self._count, woken))
            self._give_up_turn()
        assert woken.wait(60), "nobody woke this actor"

    def leave(self) -> None:
        with self._lock:
            self._give_up_turn()

    def _give_up_turn(self) -> None:
        self._running -= 1
        if self._running == 0 and self._waiting:
            self._now, _, woken = heapq.heappop(self._waiting)
            self._running += 1
            woken.set()
