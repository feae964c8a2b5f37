"""The rows and single numbers of a module, by the hashes of their bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.held_weights import HeldWeights
from onnx_gate.verify.inspect.weight_bits import all_among, bits_of, cast_to, castable, hash_rows

# How many rows are tried before all are.
_TRIED = 8


class RowHashes:
    """Tells of which tensors of a module a weight has the rows, whatever their order."""

    def __init__(self, held: HeldWeights) -> None:
        self._held = held
        self._rows: dict[tuple[str, int], tuple[NDArray[np.uint64], list[str]]] = {}
        self._elements: dict[str, NDArray[np.unsignedinteger]] = {}

    def owner(self, array: Array) -> str | None:
        """Return the tensor whose rows a weight has, "" where they are of several, ``None`` of none."""
        flat = array.reshape(len(array), -1)
        for view in (array.reshape(-1, array.shape[-1]), flat, np.swapaxes(array, -1, -2)):
            rows = np.ascontiguousarray(view).reshape(-1, view.shape[-1])
            hashes, owners = self._hashed(array.dtype, rows.shape[1])
            if not hashes.size or rows.shape[1] < 2:
                continue
            if not all_among(hash_rows(rows[:_TRIED]), hashes):
                continue
            wanted = hash_rows(rows)
            at = np.minimum(np.searchsorted(hashes, wanted), hashes.size - 1)
            if np.array_equal(hashes[at], wanted):
                of = {owners[i] for i in at[:: max(1, at.size // 1024)]}
                return of.pop() if len(of) == 1 else ""
        return None

    def _hashed(
        self, dtype: np.dtype[np.generic], length: int
    ) -> tuple[NDArray[np.uint64], list[str]]:
        """Return the hashes of all rows of ``length`` of the module, in order, and whose they are."""
        key = str(dtype), length
        if key not in self._rows:
            hashes: list[NDArray[np.uint64]] = []
            owners: list[str] = []
            for name, tensor in self._held.tensors.items():
                if tensor.ndim < 2 or length not in (
                    tensor.shape[-1],
                    tensor.numel() // len(tensor),
                ):
                    continue
                array = self._held.value(name)
                if array is None or not castable(array.dtype, dtype):
                    continue
                hashes.append(hash_rows(cast_to(array, dtype).reshape(-1, length)))
                owners += [name] * len(hashes[-1])
            every = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
            order = np.argsort(every, kind="stable")
            self._rows[key] = every[order], [owners[i] for i in order]
        return self._rows[key]

    def has_elements(self, array: Array) -> bool:
        """Return whether each number is one of the module's vectors: biases, end to end or cut."""
        if array.dtype.kind in "iu":
            return False
        key = str(array.dtype)
        if key not in self._elements:
            vectors = [
                self._held.value(name) for name, t in self._held.tensors.items() if t.ndim < 2
            ]
            made = [
                bits_of(cast_to(v, array.dtype)).reshape(-1)
                for v in vectors
                if v is not None and castable(v.dtype, array.dtype)
            ]
            self._elements[key] = np.unique(np.concatenate(made)) if made else np.zeros(0, np.uint8)
        return bool(np.isin(bits_of(array), self._elements[key]).all())
