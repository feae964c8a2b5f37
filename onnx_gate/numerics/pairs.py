"""Reading two arrays of any layout and dtype side by side, block by block, as float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnx_gate.numerics.stream import Array, Floats, buffer, capacity


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
    if skip:
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
            self._bits = buffer(np.uint32, capacity(array.size))
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
    """Blocks of two arrays of one shape as float64, and their absolute differences.

    ``a`` and ``e`` hold the block last loaded: its ``n`` elements, and zeros behind them.
    """

    def __init__(self, actual: Array, expected: Array) -> None:
        size = capacity(actual.size)
        self.a: Floats = buffer(np.float64, size)
        self.e: Floats = buffer(np.float64, size)
        # For whoever looks through the block.
        self.spare: Floats = buffer(np.float64, size)
        self.mask: NDArray[np.bool_] = buffer(np.bool_, size)
        self._sides = ((Reader(actual), self.a), (Reader(expected), self.e))
        kinds = _wide_kinds(actual.dtype, expected.dtype)
        self._wide = [buffer(kind, size) for kind in kinds] if kinds else None

    def load(self, low: int, n: int) -> None:
        """Read the ``n`` elements from the flat index ``low``."""
        for side, (reader, out) in enumerate(self._sides):
            if self._wide is None:
                reader.read(out[:n], low)
            else:
                integers = self._wide[side][:n]
                reader.read(integers, low)
                np.copyto(out[:n], integers)
            if n < out.size:
                out[n:] = 0.0

    def subtract(self, n: int) -> Floats:
        """Return |a - e| of the ``n`` elements loaded; it takes the place of ``a``.

        The difference is taken in float64, that of 64-bit integers exactly before it is rounded.
        """
        d = self.a[:n]
        if self._wide is None:
            np.subtract(d, self.e[:n], out=d)
            np.absolute(d, out=d)
        else:
            _integer_distance(self._wide[0][:n], self._wide[1][:n], d)
        return d

    def hide_nonfinite(self, n: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Set pairs with a NaN or an infinity to zero, in ``a`` and ``e``.

        Returns the mask of these pairs and the places, increasing, of those that clash: where
        NaN does not meet NaN or an infinity not the same infinity.
        """
        a, e = self.a[:n], self.e[:n]
        hidden = ~(np.isfinite(a) & np.isfinite(e))
        clash = hidden & ~(np.isnan(a) & np.isnan(e)) & (a != e)
        a[hidden] = 0.0
        e[hidden] = 0.0
        return hidden, np.flatnonzero(clash)


def _wide_kinds(actual: np.dtype[Any], expected: np.dtype[Any]) -> tuple[str, str] | None:
    dtypes = (actual, expected)
    if any(d.kind not in "biu" for d in dtypes) or all(d.itemsize < 8 for d in dtypes):
        return None
    if any(d.kind == "u" and d.itemsize == 8 for d in dtypes):
        return ("i8" if actual.kind == "i" else "u8", "i8" if expected.kind == "i" else "u8")
    return "i8", "i8"


def _integer_distance(x: Array, y: Array, out: Floats) -> None:
    """Set ``out`` to |x - y|; overwrites both. Exact but for the final rounding to float64."""
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
    """Return |x - y| of two vectors of int64 or of uint64, exact in uint64; overwrites both."""
    larger = np.maximum(x, y)
    np.minimum(x, y, out=y)
    # The difference may leave int64, but not its bits: modulo 2**64 it is right.
    np.subtract(larger, y, out=x)
    return x.view(np.uint64)
