"""Which parameter a weight of a file is meant to be, where it is that but for small differences.

The idea: what an exporter makes of a parameter is the parameter, turned perhaps or with a norm folded
into it, to the bit or but for a few roundings. A weight that is near one of these everywhere, nearer
than its numbers are to each other, and is none of them was rounded to fewer bits, comes of another
checkpoint, or was changed otherwise on its way; no output need move by more than rounding moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import ml_dtypes
import numpy as np

from onnx_gate.numerics.precision import eps_of, is_floating
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.weight_bits import (
    FOLDED,
    FOUR_BITS,
    FoldedNorms,
    Mask,
    bits_of,
    cast_to,
    is_rounded,
    spread,
)

# No eight numbers are by chance as near to others as four bits are, of how far they are from their middle.
_FEWEST = 8
_NARROW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
# Where a norm was folded into a weight, its last bit decides on which side of a half some fall.
_MOST = 0.99
# What a file would have to hold, in some of its rows.
_Rows = Callable[[slice], Array]


@dataclass(frozen=True)
class Meant:
    """The parameter that a weight is meant to be, and what the file would have to hold."""

    parameter: str
    expected: Array

    def through(self, array: Array) -> str | None:
        """Return the type through which a weight went, ``None`` where that is not the difference."""
        if array.dtype != np.float32:
            return None
        for name, narrow in _NARROW.items():
            rounded = cast_to(cast_to(self.expected, narrow), array.dtype)
            if np.count_nonzero(bits_of(rounded) == bits_of(array)) >= _MOST * array.size:
                return name
        return None


def meant(
    array: Array,
    tensors: Iterable[tuple[str, Array]],
    norms: Collection[tuple[int, FoldedNorms]],
    own: str | None,
) -> Meant | None:
    """Return which of some tensors a weight is near to, ``None`` where it is near to none.

    ``norms`` may be folded into it, each along an axis. Of the tensor whose name it has, ``own``, it
    may be further off than of any other.
    """
    near = partial(_is_meant, named=own is not None)
    some = _some(array)
    for name, tensor in tensors:
        for made in _made_of(tensor, array, norms):
            if any(near(array[rows], made(rows)) for rows in some):
                expected = made(slice(None))
                if near(array, expected) and _apart(array, expected, named=own is not None).any():
                    return Meant(name, expected)
    return None


def rows_off(array: Array, expected: Array) -> Mask:
    """Return which rows of a weight are not what a parameter becomes but for its roundings."""
    return np.asarray(_apart(array, expected).reshape(len(array), -1).any(axis=1))


def _some(array: Array) -> Sequence[slice]:
    """Return rows that say of most tensors that they are others; a vector is one row."""
    if array.ndim == 1:
        return (slice(None),)
    return tuple(slice(row, row + 1) for row in {0, len(array) // 2, len(array) - 1})


def _is_meant(array: Array, expected: Array, named: bool) -> bool:
    """Return whether a weight is near to a tensor everywhere, or is it in most places."""
    if is_rounded(array, expected) if named else _is_near(array, expected):
        return True
    alike = ~_apart(array, expected)
    # Zeros and ones stand in many tensors.
    if 2 * np.count_nonzero(alike) < array.size:
        return False
    return len(np.unique(array[alike])) >= _FEWEST


def _apart(array: Array, expected: Array, named: bool = True) -> Mask:
    """Return which numbers are apart by more than few roundings.

    Without a name to go by, by more than half of their digits: a table may be computed in two ways.
    """
    least = 0.0
    if is_floating(array.dtype):
        least = FOLDED * eps_of(array.dtype) if named else eps_of(array.dtype) ** 0.5
    a, b = array.astype(np.float64), expected.astype(np.float64)
    return np.asarray(~(np.abs(a - b) <= least * np.abs(b)))


def _made_of(
    tensor: Array, array: Array, norms: Collection[tuple[int, FoldedNorms]]
) -> Iterator[_Rows]:
    """Yield what an exporter makes of a tensor and has the shape of a weight."""
    if tensor.ndim == 2 and tensor.shape[::-1] == array.shape:
        yield tensor.T.__getitem__
    if tensor.shape != array.shape:
        return
    yield tensor.__getitem__
    for axis, every in norms:
        for scale, mean, bias in zip(every.scale, every.mean, every.bias, strict=True):
            if array.ndim == 1:
                yield ((tensor - mean) * scale + bias).__getitem__
                yield (bias - mean * scale).__getitem__
            else:
                yield partial(_scaled, tensor, scale, axis)


def _scaled(tensor: Array, scale: Array, axis: int, rows: slice) -> Array:
    factor = spread(scale, tensor.shape, axis)
    factor = factor[rows] if len(factor) == len(tensor) else factor
    scaled: Array = tensor[rows] * factor.reshape(*factor.shape, *[1] * (tensor.ndim - 2))
    return scaled


def _is_near(array: Array, expected: Array) -> bool:
    """Return whether each row is nearer to the expected one than its numbers are to each other.

    Than those of its middle half, as a single large one says nothing of the others.
    """
    rows = len(array) if array.ndim > 1 else 1
    a, b = (x.astype(np.float64).reshape(rows, -1) for x in (array, expected))
    if a.shape[1] < _FEWEST:
        return False
    low, high = np.quantile(b, (0.25, 0.75), axis=1)
    return bool((np.abs(a - b).max(axis=1) <= FOUR_BITS * (high - low) / 2).all())
