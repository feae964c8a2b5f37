"""Weights held against others to the bit, and with the batch norm that was folded into them: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_gate.numerics.precision import eps_of, is_floating
from onnx_gate.runtimes.base import Array

Mask = NDArray[np.bool_]
# Folding is w * (g / sqrt(v + e)), and for a bias a sum of three terms: four roundings, each of them
# in another order on the other side.
FOLDED = 8
# Half a step of four bits with a sign, of the largest number of a row.
FOUR_BITS = 1 / 14
# The numbers that are looked at together: a copy of so many is little beside any weight that matters.
_AT_ONCE = 1 << 22
_SEED = 20_261_122


@dataclass(frozen=True)
class FoldedNorms:
    """What folding batch norms into the layers before them multiplies by, and adds; [norms, channels]."""

    scale: NDArray[np.float64]
    mean: NDArray[np.float64]
    bias: NDArray[np.float64]


def folded_bias(
    array: Array, expected: Array, norms: FoldedNorms
) -> Iterator[tuple[Mask, NDArray[np.float64]]]:
    """Yield for each norm which numbers are those of a bias with it folded in, where any is, and that bias.

    A sum of three terms, each as large as it is: what is lost is in units of these.
    """
    eps, least = FOLDED * eps_of(array.dtype), float(ml_dtypes.finfo(array.dtype).tiny)
    terms = expected.astype(np.float64) * norms.scale, -norms.mean * norms.scale, norms.bias
    size = sum(np.abs(term) for term in terms)
    folded = np.asarray(sum(terms), np.float64)
    near = np.abs(array.astype(np.float64) - folded) <= eps * size + least
    some = near.any(axis=1)
    yield from zip(near[some], folded[some], strict=True)


def by_channel(array: Array, axis: int, channels: int) -> Array:
    """Return a weight as [channels, all else]; along axis 1 there may be some of each of several groups.

    Those of a transposed convolution are [in, out / groups, ...], a group's inputs next to each other.
    """
    groups = channels // array.shape[axis]
    parts = array.reshape(groups, len(array) // groups, *array.shape[1:]) if axis else array[None]
    return np.moveaxis(parts, axis + 1, 1).reshape(channels, -1)


def spread(scale: NDArray[np.float64], shape: Sequence[int], axis: int) -> NDArray[np.float64]:
    """Return what each number of a weight is multiplied by, of the two first axes of its shape."""
    if axis == 0:
        return scale[:, None]
    groups = scale.size // shape[1]
    return np.repeat(scale.reshape(groups, shape[1]), shape[0] // groups, axis=0)


def folded_into(array: Array, expected: Array, norms: FoldedNorms, axis: int) -> Iterator[Mask]:
    """Yield for each norm which channels of a weight are ``expected``'s with it folded in, where any is."""
    eps, least = FOLDED * eps_of(array.dtype), float(ml_dtypes.finfo(array.dtype).tiny)
    a, b = (by_channel(x, axis, norms.scale.shape[1]) for x in (array, expected))
    # One number of each channel first: most norms are not this layer's.
    first = b[:, 0].astype(np.float64) * norms.scale
    near = np.abs(a[:, 0] - first) <= eps * np.abs(first) + least
    for scale in norms.scale[near.any(axis=1)]:
        folded = b.astype(np.float64) * scale[:, None]
        fits = (np.abs(a - folded) <= eps * np.abs(folded) + least).all(axis=1)
        if fits.any():
            yield np.asarray(fits)


def is_rounded(array: Array, expected: Array) -> bool:
    """Return whether a weight may be ``expected`` in fewer bits: no row is further off than in four."""
    a, b = (x.astype(np.float64).reshape(len(x), -1) for x in (array, expected))
    largest = np.abs(b).max(axis=1, initial=0.0) if array.ndim > 1 else np.abs(b).max(initial=0.0)
    return bool((np.abs(a - b).max(axis=1) <= FOUR_BITS * largest).all())


def bits_of(array: Array) -> NDArray[np.unsignedinteger]:
    """Return the bits of numbers as integers of the same shape.

    Both zeros have the same: what stores no zeros has one only.
    """
    bits: NDArray[np.unsignedinteger] = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    if is_floating(array.dtype):
        negative = bits == 1 << (8 * array.dtype.itemsize - 1)
        bits = np.where(negative, bits.dtype.type(0), bits) if negative.any() else bits
    return bits.reshape(array.shape)


def held_in(array: Array, expected: Array) -> Mask:
    """Return which numbers have the bits of ``expected``, in the same type.

    What is cast and is below the least normal number may be flushed, or raised to that number.
    """
    held = np.asarray(bits_of(cast_to(expected, array.dtype)) == bits_of(array))
    if expected.dtype != array.dtype and is_floating(array.dtype):
        least = float(ml_dtypes.finfo(array.dtype).tiny)
        held |= (np.abs(array) <= least) & (np.abs(expected) <= least)
    return held


def some_rows(array: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Yield two arrays of one shape some rows at a time."""
    if not array.ndim:
        yield array.reshape(1), other.reshape(1)
        return
    rows = max(1, _AT_ONCE * len(array) // max(1, array.size))
    for low in range(0, len(array), rows):
        yield array[low : low + rows], other[low : low + rows]


def equal_bits(expected: Array, array: Array) -> bool:
    """Return whether a weight has the bits of ``expected`` in its type."""
    return expected.shape == array.shape and all(
        _equal_bits(cast_to(one, array.dtype), other) for one, other in some_rows(expected, array)
    )


def _equal_bits(one: Array, other: Array) -> bool:
    raw = f"u{one.dtype.itemsize}"
    # As they lie, also where one lies transposed; zeros of two signs are seldom all that differs.
    return np.array_equal(one.view(raw), other.view(raw)) or np.array_equal(
        bits_of(one), bits_of(other)
    )


def largest_difference(array: Array, expected: Array) -> float:
    """Return the largest difference of two arrays of one shape."""
    return max(
        float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
        for a, b in some_rows(array, expected)
    )


def castable(source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Return whether a weight may have been cast so: among floating-point types, or not at all."""
    return source == target or (is_floating(source) and is_floating(target))


def cast_to(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return numbers in another dtype; what it does not have becomes an infinity or NaN in silence."""
    with np.errstate(over="ignore", invalid="ignore"):
        return array if array.dtype == dtype else array.astype(dtype)


def hash_rows(rows: Array) -> NDArray[np.uint64]:
    """Return a 64-bit hash of the bits of each row: a sum of products with random odd numbers."""
    factors = np.random.default_rng(_SEED).integers(0, 2**63, rows.shape[1], dtype=np.uint64) | 1
    made = [
        (bits_of(part).astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
        for part, _ in some_rows(rows, rows)
    ]
    return np.concatenate(made) if made else np.zeros(0, np.uint64)


def same_rows(one: Array, other: Array) -> bool:
    """Return whether two tensors of one shape have the same rows along their first axis, in some order."""
    a, b = (hash_rows(cast_to(each, one.dtype).reshape(len(each), -1)) for each in (one, other))
    return np.array_equal(np.sort(a), np.sort(b))


def all_among(wanted: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> bool:
    """Return whether all hashes are among some that are in order, of which there is at least one."""
    at = np.minimum(np.searchsorted(ordered, wanted), ordered.size - 1)
    return np.array_equal(ordered[at], wanted)
