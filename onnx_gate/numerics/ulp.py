"""Distances in units in the last place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onnx_gate.numerics.pairs import Reader, check_pair, wrapped_distance
from onnx_gate.numerics.stream import Array, blocks, buffer, capacity, stream

# The bits of +infinity; whatever has a larger magnitude is NaN.
_INFINITY = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F80_0000,
    "float64": 0x7FF0_0000_0000_0000,
}


def max_ulp(actual: Array, expected: Array) -> tuple[int, int]:
    """Return the largest distance in units in the last place, and its first flat C-order index.

    The distance of two floats is the number of steps between them along the representable
    values, the difference of their bits read as sign and magnitude (Bruce Dawson, "Comparing
    Floating Point Numbers"): +0 and -0 are 0 apart, the largest finite number and infinity 1.
    Pairs with a NaN are skipped; without any other the result is (0, -1).

    Both arrays must have one shape (else ``ValueError``) and one dtype out of float16, bfloat16,
    float32 and float64 (else ``TypeError``); any strides. Extra memory is constant.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    check_pair(actual, expected)
    name = actual.dtype.name
    if name != expected.dtype.name or name not in _INFINITY:
        raise TypeError(f"no common floating-point dtype: {actual.dtype} and {expected.dtype}")
    (worker,) = stream(actual.size, 1, lambda: _UlpWorker(actual, expected))
    return max(worker.value, 0), worker.index


class _UlpWorker:
    def __init__(self, actual: Array, expected: Array) -> None:
        self.value = -1
        self.index = -1
        self._infinity = _INFINITY[actual.dtype.name]
        self._magnitude = (1 << (8 * actual.dtype.itemsize - 1)) - 1
        size = capacity(actual.size)
        self._readers = [Reader(_as_integers(array)) for array in (actual, expected)]
        self._keys = [buffer(np.int64, size) for _ in self._readers]
        self._signs = buffer(np.int64, size)

    def task(self, low: int, high: int) -> None:
        for start, n in blocks(low, high):
            x, y = self._read(start, n)
            nan = self._nan(x, y)
            if nan is not None:
                if nan.all():
                    continue
                x[nan] = y[nan] = 0
            distance = wrapped_distance(x, y)
            top = int(distance.max())
            if top > self.value:
                found = distance == top
                if nan is not None:
                    found &= ~nan
                self.value, self.index = top, start + int(found.argmax())

    def _read(self, start: int, n: int) -> list[NDArray[np.int64]]:
        """Return the keys of both sides: integers in the order of the floats, both zeros 0."""
        for reader, keys in zip(self._readers, (k[:n] for k in self._keys), strict=True):
            reader.read(keys, start)
            signs = np.right_shift(keys, 63, out=self._signs[:n])
            # Where the sign is set: all other bits inverted, which is -magnitude - 1, plus 1.
            np.bitwise_and(signs, self._magnitude, out=signs)
            np.bitwise_xor(keys, signs, out=keys)
            np.right_shift(keys, 63, out=signs)
            np.subtract(keys, signs, out=keys)
        return [keys[:n] for keys in self._keys]

    def _nan(self, x: Array, y: Array) -> NDArray[np.bool_] | None:
        limit = self._infinity
        if all(int(k.max()) <= limit and int(k.min()) >= -limit for k in (x, y)):
            return None
        return (np.abs(x) > limit) | (np.abs(y) > limit)


def _as_integers(array: Array) -> Array:
    integer = np.dtype(f"i{array.dtype.itemsize}")
    if array.dtype.name == "bfloat16":
        return array.view(integer)
    return array.view(integer.newbyteorder(array.dtype.byteorder))
