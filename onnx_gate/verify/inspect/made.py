"""What ``forward`` computes of no input: a file may have the result in the place of the operators.

So it has frequencies, slopes and masks, and weights that are normalised or decomposed before they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_array, to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.operator_mode import FollowingMode, tensors_of

# More of them is kept of no model.
_MOST_BYTES = 64 << 20
# An exporter computes them by other kernels: they are off by some units, of the number and of 1.
_UNITS = 8.0
# What puts numbers elsewhere, or in another type, beside views.
_MOVES = frozenset(("clone", "cat", "stack", "index_select", "flip", "roll", "repeat", "_to_copy"))


class _OfNoInput(FollowingMode):
    """Keeps the results of operators that no input leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[torch.Tensor, bool]] = []
        # What is more than the module's own tensors moved about, which are what they are to the bit.
        self._computed: MutableMapping[torch.Tensor, None] = WeakTensorKeyDictionary()
        self._left = _MOST_BYTES

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and keep what it makes."""
        given = tensors_of((args, kwargs))
        led = self.follows(given)
        result = func(*args, **kwargs)
        if led:
            self.follow(result)
            return result
        moves = name in _MOVES or any(r.alias_info is not None for r in func._schema.returns)
        computed = not given or not moves or any(each in self._computed for each in given)
        for leaf in tensors_of(result):
            if computed:
                self._computed[leaf] = None
            if leaf.numel() > 1 and leaf.nbytes <= self._left and "empty" not in name:
                self._left -= leaf.nbytes
                self.found.append((leaf.detach().clone(), computed))
        return result


class MadeOfNoInput:
    """The values of one module that depend on no input, on one case; computed when first asked."""

    def __init__(self, eager: Eager, inputs: Mapping[str, Array]) -> None:
        self._eager, self._inputs = eager, inputs
        self._found: dict[int, list[tuple[Array, bool]]] | None = None

    def has(self, array: Array) -> bool:
        """Return whether an array is one of them, as it is, in another shape or transposed."""
        if self._found is None:
            self._found = self._made()
        orders = (array, array.T) if array.ndim > 1 else (array,)
        alike = self._found.get(array.size, ())
        return any(
            _near(each.reshape(-1), other) if computed else np.array_equal(each.reshape(-1), other)
            for each in orders
            for other, computed in alike
        )

    def _made(self) -> dict[int, list[tuple[Array, bool]]]:
        mode = _OfNoInput()
        tensors = {name: to_tensor(array) for name, array in self._inputs.items()}
        mode.follow(tensors)
        found: dict[int, list[tuple[Array, bool]]] = {}
        try:
            self._eager.run_prepared(tensors, mode=mode)
        except Refusal:
            return found
        for made, computed in mode.found:
            found.setdefault(made.numel(), []).append((to_array(made).reshape(-1), computed))
        return found


def _near(one: Array, other: Array) -> bool:
    if other.dtype.kind in "iub":  # which is cast where it meets others
        return np.array_equal(one, other.astype(one.dtype))
    if one.dtype != other.dtype or one.dtype.kind != "f":
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    unit = _UNITS * float(np.finfo(one.dtype).eps)
    return np.allclose(one, other, rtol=unit, atol=unit, equal_nan=True)
