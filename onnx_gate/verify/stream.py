"""Reading two arrays of any layout side by side, in blocks that stay in the cache.

The blocks are fixed ranges of the flat C-order index, whatever the number of threads. What is
accumulated per block is combined exactly (counts, maxima with their first index, correctly
rounded sums of the blocks' sums), so the number of threads never changes a result.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

# Three float64 buffers and the two pieces they are read from fit a second-level cache of 1 MiB.
BLOCK = 32768
# Blocks that a thread takes at a time; an array of one task is not worth a second thread.
TASK = 32

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


def buffer(dtype: Any, size: int) -> Array:
    """Return an uninitialised vector that starts at a cache line.

    Aligned vectors are faster, and they keep sums independent of where memory happened to lie.
    """
    item = np.dtype(dtype).itemsize
    raw = np.empty(size * item + _CACHE_LINE, np.uint8)
    skip = -raw.ctypes.data % _CACHE_LINE
    return raw[skip : skip + size * item].view(dtype)


def gather(out: Array, array: Array, low: int) -> None:
    """Fill the vector ``out`` with the elements of ``array`` from the flat C-order index ``low``.

    Values are converted to the dtype of ``out``. ``array`` may have any strides; at most a few
    rectangular pieces a dimension are copied, straight into ``out``.
    """
    if array.ndim == 1:
        np.copyto(out, array[low : low + out.size], casting="unsafe")
        return
    inner = math.prod(array.shape[1:])
    row, skip = divmod(low, inner)
    if skip or out.size < inner:
        head = min(inner - skip, out.size)
        gather(out[:head], array[row], skip)
        out = out[head:]
        row += 1
    rows = out.size // inner
    whole = rows * inner
    if rows:
        target = out[:whole].reshape(rows, *array.shape[1:])
        np.copyto(target, array[row : row + rows], casting="unsafe")
    if whole < out.size:
        gather(out[whole:], array[row + rows], 0)


class Reader:
    """Flat ranges of one array, converted to another dtype block by block."""

    def __init__(self, array: Array) -> None:
        self._bits: Array | None = None
        if array.dtype.name == "bfloat16":
            # A bfloat16 is the upper half of a float32; shifting is many times faster than the
            # conversion that ml_dtypes registers.
            array = array.view(np.uint16)
            self._bits = buffer(np.uint32, BLOCK)
        contiguous = array.ndim == 0 or array.flags.c_contiguous
        self._array = array.reshape(-1) if contiguous else array

    def read(self, out: Array, low: int) -> None:
        """Fill ``out``, of at most ``BLOCK`` elements, from the flat index ``low``."""
        if self._bits is None:
            gather(out, self._array, low)
            return
        bits = self._bits[: out.size]
        gather(bits, self._array, low)
        np.left_shift(bits, 16, out=bits)
        np.copyto(out, bits.view(np.float32))


class Pair:
    """Blocks of two arrays of one shape as float64, with their absolute differences.

    ``a``, ``e`` and ``d`` hold the block last read (its first ``n`` elements; zeros behind it).
    ``d`` is |a - e|, taken in float64, for 64-bit integers exactly before it is rounded.
    """

    def __init__(self, actual: Array, expected: Array) -> None:
        self._readers = Reader(actual), Reader(expected)
        self.a: Floats = buffer(np.float64, BLOCK)
        self.e: Floats = buffer(np.float64, BLOCK)
        self.d: Floats = buffer(np.float64, BLOCK)
        self.mask: NDArray[np.bool_] = buffer(np.bool_, BLOCK)
        kinds = _wide_kinds(actual.dtype, expected.dtype)
        self._wide = [buffer(kind, BLOCK) for kind in kinds] if kinds else None

    def read(self, low: int, n: int) -> None:
        """Read the ``n`` elements from the flat index ``low``, differences included."""
        a, e, d = self.a[:n], self.e[:n], self.d[:n]
        if self._wide is None:
            self._readers[0].read(a, low)
            self._readers[1].read(e, low)
            np.subtract(a, e, out=d)
            np.absolute(d, out=d)
        else:
            x, y = self._wide[0][:n], self._wide[1][:n]
            self._readers[0].read(x, low)
            self._readers[1].read(y, low)
            np.copyto(a, x)
            np.copyto(e, y)
            _integer_distance(x, y, d)
        if n < BLOCK:
            self.a[n:] = 0.0
            self.e[n:] = 0.0
            self.d[n:] = 0.0

    def hide_nonfinite(self, n: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Set pairs with a NaN or an infinity to zero, in ``a``, ``e`` and ``d``.

        Returns the mask of these pairs and the places, increasing, of those that clash: where
        NaN does not meet NaN or an infinity not the same infinity.
        """
        a, e, d = self.a[:n], self.e[:n], self.d[:n]
        hidden = ~(np.isfinite(a) & np.isfinite(e))
        clash = hidden & ~(np.isnan(a) & np.isnan(e)) & (a != e)
        for values in (a, e, d):
            values[hidden] = 0.0
        return hidden, np.flatnonzero(clash)


def _wide_kinds(actual: np.dtype[Any], expected: np.dtype[Any]) -> tuple[str, str] | None:
    dtypes = (actual, expected)
    if any(d.kind not in "biu" for d in dtypes) or all(d.itemsize < 8 for d in dtypes):
        return None
    if any(d.kind == "u" and d.itemsize == 8 for d in dtypes):
        return ("i8" if actual.kind == "i" else "u8", "i8" if expected.kind == "i" else "u8")
    return "i8", "i8"


def _integer_distance(x: Array, y: Array, out: Floats) -> None:
    """Set ``out`` to |x - y|; overwrites ``x``. Exact but for the final rounding to float64."""
    if x.dtype == y.dtype:
        np.copyto(out, wrapped_distance(x, y))
        return
    signed = x if x.dtype.kind == "i" else y
    unsigned = y if x.dtype.kind == "i" else x
    below = signed < 0
    # The distance from a negative number to a large unsigned one may need 65 bits.
    far = unsigned[below].astype(np.float64) - signed[below].astype(np.float64)
    np.copyto(out, wrapped_distance(x.view(np.uint64), y.view(np.uint64)))
    out[below] = far


def wrapped_distance(x: Array, y: Array) -> NDArray[np.uint64]:
    """Return |x - y| of two vectors of int64 or of uint64, exact in uint64; overwrites ``x``."""
    less = x < y
    np.subtract(x, y, out=x)
    # Modulo 2**64 a difference of the wrong sign is mended by negating it.
    np.negative(x, out=x, where=less)
    return x.view(np.uint64)


def check_pair(actual: Array, expected: Array) -> None:
    """Raise ``ValueError`` for unequal shapes, ``TypeError`` for values that are not real numbers.

    Real numbers are bool, the integers, float16 to float64 and bfloat16.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shapes differ: {actual.shape} and {expected.shape}")
    for dtype in (actual.dtype, expected.dtype):
        known = dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8)
        if not known and dtype.name != "bfloat16":
            raise TypeError(f"cannot compare values of dtype {dtype}")


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
