"""What ``forward`` computes of no input: a file may have the result in the place of the operators.

So it has frequencies, slopes and masks, and weights that are normalised or decomposed before they are used.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.errors import GateError
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_array, to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.operator_mode import FollowingMode, tensors_of

# More of them is kept of no model, and the smallest first: what comes of large weights is large, too.
_MOST_BYTES = 64 << 20
# An exporter computes them by other kernels: they are off by some units, of the number and of 1.
_UNITS = 8.0
# What puts numbers elsewhere, or in another type, beside views.
_MOVES = frozenset(("clone", "cat", "stack", "index_select", "flip", "roll", "repeat", "_to_copy"))


class _OfNoInput(FollowingMode):
    """Keeps the results of operators that no input leads to."""

    def __init__(self) -> None:
        super().__init__()
        # By their sizes, the largest first, and in the order in which they are made.
        self._kept: list[tuple[int, int, torch.Tensor, bool]] = []
        # What is more than the module's own tensors moved about, which are what they are to the bit.
        self._computed: MutableMapping[torch.Tensor, None] = WeakTensorKeyDictionary()
        self._left = _MOST_BYTES
        self._made = self._depth = 0

    @property
    def found(self) -> list[tuple[torch.Tensor, bool]]:
        """Return what was kept, each with whether it is computed, in the order in which it was made."""
        return [kept[2:] for kept in sorted(self._kept, key=lambda kept: kept[1])]

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and keep what it makes."""
        given = tensors_of((args, kwargs))
        led = self.follows(given)
        result = func(*args, **kwargs)
        if led:
            self.follow(result)
            self._inside_of(func, args, kwargs)
            return result
        moves = name in _MOVES or any(r.alias_info is not None for r in func._schema.returns)
        computed = not given or not moves or any(each in self._computed for each in given)
        for leaf in tensors_of(result):
            if computed:
                self._computed[leaf] = None
            alike = self._depth > 0 and bool((leaf == leaf.reshape(-1)[:1]).all())
            if leaf.numel() > 1 and "empty" not in name and not alike:
                self._keep(leaf, computed)
        return result

    def _inside_of(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Look at what an operator is made of, as an exporter does that has no translation of it.

        So the places that a resizing reads, and the grid of an affine one, are numbers in the file. One
        number throughout says nothing there.
        """
        smaller = None if func._schema.is_mutable else _made_of().get(func)
        if smaller is None or torch.Tag.nondeterministic_seeded in func.tags:
            return
        self._depth += 1
        with suppress(Exception), self:  # it need not run by itself
            smaller(*args, **kwargs)
        self._depth -= 1

    def _keep(self, leaf: torch.Tensor, computed: bool) -> None:
        """Keep a copy, in the place of larger ones where there is no room."""
        while self._kept and self._left < leaf.nbytes < -self._kept[0][0]:
            self._left -= heapq.heappop(self._kept)[0]
        if leaf.nbytes <= self._left:
            self._left -= leaf.nbytes
            self._made += 1
            heapq.heappush(self._kept, (-leaf.nbytes, self._made, leaf.detach().clone(), computed))


class MadeOfNoInput:
    """The values of one module that depend on no input, on one case; computed when first asked.

    Inside of ``ready`` the module can be called as a whole.
    """

    def __init__(
        self,
        eager: Eager,
        inputs: Mapping[str, Array],
        ready: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._eager, self._inputs, self._ready = eager, inputs, ready
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
            with self._ready():
                self._eager.run_prepared(tensors, mode=mode)
        except Refusal:
            return found
        for made, computed in mode.found:
            # A file has the parts of complex numbers one by one.
            parts = (made.real, made.imag) if made.is_complex() else (made,)
            with suppress(GateError):  # no file could have it: a sparse one, a quantised one
                for part in parts:
                    found.setdefault(part.numel(), []).append(
                        (to_array(part).reshape(-1), computed)
                    )
        return found


@cache
def _made_of() -> Mapping[Any, Callable[..., Any]]:
    """Return what torch.export makes operators of."""
    return dict(torch.export.default_decompositions())


def _near(one: Array, other: Array) -> bool:
    if other.dtype.kind in "iub":  # which is cast where it meets others
        return np.array_equal(one, other.astype(one.dtype))
    if one.dtype != other.dtype or one.dtype.kind != "f":
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    unit = _UNITS * float(np.finfo(one.dtype).eps)
    return np.allclose(one, other, rtol=unit, atol=unit, equal_nan=True)
