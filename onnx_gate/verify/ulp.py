"""Distances in units in the last place."""

from __future__ import annotations

import numpy as np

from onnx_gate.verify import stream as _stream
from onnx_gate.verify.pairs import Reader, check_pair, wrapped_distance
from onnx_gate.verify.stream import Array, blocks, buffer, stream

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
        self._lowest = -(1 << (8 * actual.dtype.itemsize - 1))
        self._readers = [Reader(_as_integers(array)) for array in (actual, expected)]
        self._buffers = [buffer(np.int64, _stream.BLOCK) for _ in self._readers]

    def task(self, low: int, high: int) -> None:
        for start, n in blocks(low, high):
            x, y = (b[:n] for b in self._buffers)
            nan = np.zeros(n, np.bool_)
            for reader, keys in zip(self._readers, (x, y), strict=True):
                reader.read(keys, start)
                np.subtract(self._lowest, keys, out=keys, where=keys < 0)
                nan |= np.abs(keys) > self._infinity
            if nan.all():
                continue
            x[nan] = y[nan] = 0
            distance = wrapped_distance(x, y)
            top = int(distance.max())
            if top > self.value:
                self.value = top
                self.index = start + int(np.argmax((distance == top) & ~nan))


def _as_integers(array: Array) -> Array:
    integer = np.dtype(f"i{array.dtype.itemsize}")
    if array.dtype.name == "bfloat16":
        return array.view(integer)
    return array.view(integer.newbyteorder(array.dtype.byteorder))
