"""Passing over the flat indices of an array in blocks that stay in the cache, by threads.

The blocks are fixed ranges of the flat C-order index, whatever the number of threads. What is
accumulated per block is combined exactly (counts, maxima with their first index, correctly
rounded sums of the blocks' sums), so the number of threads never changes a result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

# The elements of a block. The two float64 buffers that every block passes through are 4 MiB, which
# stay in the last-level cache. A second-level cache would hold a quarter of it, and one thread is
# no slower for it; but then NumPy's calls take some ten microseconds each, less than it takes to
# wake a thread that waits for the interpreter's lock, and two threads run one after the other.
BLOCK = 1 << 18
# Blocks that a thread takes at a time; an array of one task is not worth a second thread.
TASK = 4
# The elements of one call of BLAS. OpenBLAS shares longer dot products among threads of its own,
# which get in the way of the caller's.
STRIP = 8192

_CACHE_LINE = 64


class Worker(Protocol):
    """What one thread does with the ranges of the flat index that it is given."""

    def task(self, low: int, high: int) -> None:
        """Take in the elements ``low`` (inclusive) to ``high`` (exclusive)."""


W = TypeVar("W", bound=Worker)


def stream(size: int, threads: int, make: Callable[[], W]) -> list[W]:
    """Pass the flat indices 0 to ``size`` through workers, one a thread, and return them.

    Each worker sees increasing ranges of ``TASK * BLOCK`` elements; together they see every
    element once. ``make`` is called once a worker. NumPy's floating-point warnings are off while
    workers run. Raises ``ValueError`` where ``threads`` is below 1, and what a worker raises.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    step = BLOCK * TASK
    lows = iter(range(0, size, step))
    lock = threading.Lock()

    def take() -> Iterator[int]:
        while True:
            with lock:
                low = next(lows, None)
            if low is None:
                return
            yield low

    def run(worker: W) -> None:
        # The error state of NumPy belongs to a thread.
        with np.errstate(all="ignore"):
            for low in take():
                worker.task(low, min(low + step, size))

    count = max(1, min(threads, -(-size // step)))
    workers = [make() for _ in range(count)]
    if count == 1:
        run(workers[0])
    else:
        with ThreadPoolExecutor(count) as pool:
            for _ in pool.map(run, workers):
                pass
    return workers


def blocks(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks of the range ``low`` to ``high`` as (start, number of elements)."""
    for start in range(low, high, BLOCK):
        yield start, min(BLOCK, high - start)


def capacity(size: int) -> int:
    """Return the elements a buffer needs for the blocks of an array of ``size`` elements.

    That is one strip, or whole strips, so that products can be added strip by strip.
    """
    return min(BLOCK, max(1, -(-size // STRIP)) * STRIP)


def buffer(dtype: Any, size: int) -> Array:
    """Return an uninitialised vector that starts at a cache line.

    Aligned vectors are faster, and they keep sums independent of where memory happened to lie.
    """
    item = np.dtype(dtype).itemsize
    raw = np.empty(size * item + _CACHE_LINE, np.uint8)
    skip = -raw.ctypes.data % _CACHE_LINE
    return raw[skip : skip + size * item].view(dtype)


class Best:
    """The largest value offered, with the first index that attains it; -1 and -1 before any."""

    __slots__ = ("index", "value")

    def __init__(self) -> None:
        self.value = -1.0
        self.index = -1

    def offer(self, value: float, index: int) -> None:
        """Take ``value`` in where it is larger, or as large at a smaller index."""
        if value > self.value or (value == self.value and 0 <= index < self.index):
            self.value, self.index = value, index

    @classmethod
    def of(cls, parts: Sequence[Best]) -> Best:
        """Return the best of ``parts``."""
        best = cls()
        for part in parts:
            best.offer(part.value, part.index)
        return best
