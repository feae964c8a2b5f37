"""Values of the two sides: what kind they are, how far apart, how much they tell, where they lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import ml_dtypes
import numpy as np

from onnx_gate.graph.session import Value
from onnx_gate.numerics.precision import eps_of, masked_at
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import Noise

# What one correct operator may be away from another, in units of the precision: float16 and
# bfloat16 are computed in float32 and rounded once.
ROUNDING = 25.0
ROUNDING_NARROW = 4.0
_NARROW = 1e-4
# Elements looked at before two arrays are compared in full.
SAMPLES = 24
# Smaller arrays are never written to disk.
_SMALL = 2**16
# What spilled arrays leave free on the disk.
_FREE = 2**30


def kind_of(array: Array) -> str:
    """Return ``f``, ``i``, ``b`` or ``s``: floating, integer, Boolean or anything else."""
    if array.dtype.kind in "fV":
        return "f"
    return {"b": "b", "i": "i", "u": "i"}.get(array.dtype.kind, "s")


def distance(actual: Value, expected: Value) -> float:
    """Return ``scale_error``, and 0 or infinity for integers and Booleans; infinite for no value."""
    if not isinstance(actual, np.ndarray) or not isinstance(expected, np.ndarray):
        return float("inf")
    kinds = kind_of(actual), kind_of(expected)
    if kinds[0] != kinds[1]:
        return float("inf")
    if kinds[0] == "f":
        with np.errstate(all="ignore"):
            return scale_error(*_without_masks(actual, expected))
    if kinds[0] == "i" and actual.size == expected.size == 1:
        # A size is a number on one side and a list of one number on the other.
        return 0.0 if actual.item() == expected.item() else float("inf")
    return 0.0 if np.array_equal(actual, expected) else float("inf")


def output_error(actual: Array, expected: Array, noise: Noise | None) -> float:
    """Return ``scale_error``, each element in units of its own limit where ``noise`` knows it."""
    error = scale_error(actual, expected)
    if noise is None or noise.expected.shape != expected.shape or not np.isfinite(error):
        return error
    return noise.used(actual, expected).share * noise.terms.relative


def allowance(expected: Array, actual: Array | None = None) -> float:
    """Return the distance that rounding explains in one operator."""
    coarser = max(eps_of(expected.dtype), 0.0 if actual is None else eps_of(actual.dtype))
    return (ROUNDING_NARROW if coarser > _NARROW else ROUNDING) * coarser


def _without_masks(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Return both without what masks in both, as minus infinity and the least number do in the same way.

    A scale that has one in it hides every score.
    """
    if actual.shape != expected.shape:
        return actual, expected
    one, other = (a <= masked_at(float(ml_dtypes.finfo(a.dtype).min)) for a in (actual, expected))
    masked = one & other
    if not masked.any():
        return actual, expected
    return np.where(masked, 0, actual), np.where(masked, 0, expected)


def agree(actual: Value, expected: Value) -> bool:
    """Return whether two values are the same but for the rounding of one operator."""
    return isinstance(expected, np.ndarray) and distance(actual, expected) <= allowance(
        expected, actual if isinstance(actual, np.ndarray) else None
    )


def sampled_indices(size: int) -> Array:
    """Return where to look at an array of ``size`` elements: the same sampled_indices for the same size."""
    if size <= SAMPLES:
        return np.arange(size)
    return np.unique(np.random.default_rng(size).integers(0, size, SAMPLES))


def samples(array: Array) -> Array:
    """Return some elements as float64."""
    with np.errstate(all="ignore"):
        return np.asarray(array.reshape(-1)[sampled_indices(array.size)], np.float64)


def is_distinctive(array: Value) -> bool:
    """Return whether no other value of a model equals this one by chance.

    Numbers that people write down (0, 1, 0.5), masks and small integers do.
    """
    if not isinstance(array, np.ndarray) or array.size == 0 or kind_of(array) in "bs":
        return False
    some = array.reshape(-1)[sampled_indices(array.size)]
    if kind_of(array) == "i":
        return array.size >= 64 and len(np.unique(some)) >= 12
    with np.errstate(all="ignore"):
        some = np.asarray(some, np.float64)
        some = some[np.isfinite(some) & (some * 64 != np.round(some * 64))]
    return len(np.unique(some)) >= min(2, array.size)


class ArrayStore:
    """Keeps arrays in memory up to a number of bytes, and behind that in files."""

    def __init__(self, folder: Path, memory: int) -> None:
        self._folder, self._left = folder, memory
        self._count = 0

    def put(self, array: Array) -> Array:
        """Return ``array``, or a read-only view of a file with its values.

        Raises ``MemoryError`` where neither memory nor the disk has room.
        """
        if array.nbytes <= self._left or array.nbytes < _SMALL:
            self._left -= array.nbytes
            return array
        self._folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self._folder).free < array.nbytes + _FREE:
            raise MemoryError("the intermediate values of the model fit neither memory nor disk")
        path = self._folder / f"value_{self._count}.bin"
        self._count += 1
        array.tofile(path)
        return np.memmap(path, array.dtype, "r", shape=array.shape)

    def clear(self) -> None:
        """Remove the files."""
        for path in self._folder.glob("value_*.bin"):
            path.unlink()
