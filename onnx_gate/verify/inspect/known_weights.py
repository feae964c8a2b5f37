"""What a weight of a file is of a module's: the same, turned, rearranged, folded, or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.batch_norms import BatchNorms, terms_of
from onnx_gate.verify.inspect.held_weights import HeldWeights
from onnx_gate.verify.inspect.meant import Meant, meant, rows_off
from onnx_gate.verify.inspect.row_hashes import RowHashes
from onnx_gate.verify.inspect.weight_bits import (
    Mask,
    castable,
    equal_bits,
    folded_bias,
    folded_into,
    held_in,
    is_rounded,
    largest_difference,
    same_rows,
    some_rows,
    spread,
)
from onnx_gate.verify.inspect.wrong_weight import WrongWeight

# What a norm multiplies a parameter by, and adds to it.
Fold = tuple[NDArray[np.float64], NDArray[np.float64]]
# Rows that tell whether two tensors have numbers in common.
_SOME = 64


class KnownWeights(HeldWeights):
    """The weights of a module, with what tells of a file's which of them they are."""

    @cached_property
    def _norms(self) -> BatchNorms:
        return BatchNorms(self._module)

    @cached_property
    def _rows(self) -> RowHashes:
        return RowHashes(self)

    def explain(
        self, array: Array, own: str | None, looked_up: bool = False
    ) -> tuple[str, str | None] | tuple[None, None]:
        """Return how a weight follows from the module's, and from which one if it is that alone.

        Rows that are ``looked_up`` are told by their places: most of them stand where they belong.
        """
        if own is not None and self._same(array, own):
            return "same", own
        turned = self._transposed(array)
        if turned is not None:
            return "rearranged", turned
        if any(channels.all() for channels in self._folds(array, own)):
            return "folded", None
        # Of those without a name matrices in a stack are told so, too: others are cut, and mixed.
        placed = own is None and (looked_up or array.ndim > 2)
        alike = self.mostly(array) if placed else None
        if own is not None:
            misplaced = self._is_mostly(array, own) or self._moved(array, own)
        else:
            misplaced = alike is not None and not self._same(alike[1], alike[0])
        if misplaced:
            return None, None  # a row stands where another belongs
        if array.ndim > 1:
            found = self._rows.owner(array)
            if found is not None:
                return "rearranged", found or None
        if self._rows.has_elements(array):
            return "rearranged", None
        # Of whole numbers that were cast, under a name of the exporter's, no bit is the same.
        alike = self.mostly(array) if own is None and not placed else alike
        if alike is not None and self._same(alike[1], alike[0]):
            return "same", alike[0]
        return None, None

    def comparable(self, array: Array, own: str) -> bool:
        """Return whether a weight of a parameter's name that differs from it is certainly wrong.

        It is where most of it is the parameter's, as it is or with a norm folded into it, and where
        it is not rounded to fewer bits, and there is no norm that could be folded into it in a way
        that is not known here.
        """
        expected = self.value(own)
        if expected is None or expected.shape != array.shape:
            return False
        if self._is_mostly(array, own) or self._moved(array, own):
            return True
        if is_rounded(array, expected):
            return False  # to fewer bits, which is what a tolerance is there to judge
        if not self._norms.of(array):
            return True
        return any(2 * np.count_nonzero(each) > each.size for each in self._folds(array, own))

    def foldable(self, array: Array) -> bool:
        """Return whether there is a norm that could be folded into a weight."""
        return bool(self._norms.of(array))

    def is_part(self, array: Array, own: str) -> bool:
        """Return whether a weight that has rows of a table cannot have all of them."""
        table = self.value(own)
        return table is not None and array.ndim > 1 and array.size < table.size

    def mostly(self, array: Array) -> tuple[str, Array] | None:
        """Return the tensor of which a weight has at least half of the numbers where they stand.

        Or all matrices of a stack. With the weight as that tensor has it: a product may read it transposed.
        """
        for turned in (array, array.T) if array.ndim == 2 else (array,):
            for name, tensor in self.tensors.items():
                if tensor.shape != turned.shape or not self._has_some(turned, name):
                    continue
                if self._is_mostly(turned, name):
                    return name, turned
        stack = self._rows.owner(array) if array.ndim > 2 else None
        return (stack, array) if stack and self._moved(array, stack) else None

    def _has_some(self, array: Array, own: str) -> bool:
        """Return whether some rows of a weight have numbers of a tensor: most are another's, and large."""
        expected = self.value(own)
        if expected is None or not array.size:
            return False
        rows = np.linspace(0, len(array) - 1, min(len(array), _SOME)).astype(np.int64)
        return bool(held_in(array[rows], expected[rows]).any())

    def in_few_columns(self, array: Array, own: str) -> bool:
        """Return whether a matrix is a parameter but for less than half of its columns."""
        expected = self.value(own)
        if expected is None or array.ndim != 2:
            return False
        return bool(2 * np.count_nonzero(_columns_off(array, expected)) < array.shape[1])

    def wrong(self, name: str, array: Array, own: str, instead: str | None = None) -> WrongWeight:
        """Return in what a weight is not the parameter ``own``."""
        expected = self.value(own)
        if expected is None or expected.shape != array.shape:
            return WrongWeight(name, own, 0.0, (), 0, instead)
        for _, norms in self._norms.of(array) if array.ndim == 1 else ():
            for mask, folded in folded_bias(array, expected, norms):
                if 2 * np.count_nonzero(mask) > mask.size:
                    listed = tuple(map(int, np.flatnonzero(~mask)))
                    apart = largest_difference(array, folded)
                    return WrongWeight(name, own, apart, listed, len(mask), instead)
        held = [
            held_in(a, b).reshape(len(a), -1).all(axis=1) for a, b in some_rows(array, expected)
        ]
        rows = ~np.concatenate(held)
        listed = tuple(int(i) for i in np.flatnonzero(rows)[: 1 << 10])
        apart, exchanged = largest_difference(array, expected), same_rows(array, expected)
        found = WrongWeight(name, own, apart, listed, len(rows), instead, exchanged=exchanged)
        return found.in_columns(_columns_off(array, expected)) if array.ndim == 2 else found

    def meant(self, array: Array, own: str | None) -> Meant | None:
        """Return the parameter that a weight is near to, or has most numbers of."""
        shapes = (array.shape, array.shape[::-1]) if array.ndim == 2 else (array.shape,)
        names = [own] if own is not None else self.shaped(shapes)
        held = ((name, self.value(name)) for name in names)
        alike = ((n, t) for n, t in held if t is not None and castable(t.dtype, array.dtype))
        return meant(array, alike, self._norms.of(array), own)

    def off(self, name: str, array: Array, meant: Meant) -> WrongWeight:
        """Return in what a weight is not the parameter that it is meant to be, by the rows of that one."""
        through, expected = meant.through(array), meant.expected
        own = self.value(meant.parameter)
        if own is not None and array.ndim == 2 and expected.T.shape == own.shape:
            turned = largest_difference(expected.T, own)
            if expected.shape != own.shape or turned < largest_difference(expected, own):
                array, expected = array.T, expected.T
        rows = tuple(map(int, np.flatnonzero(rows_off(array, expected))))
        apart = largest_difference(array, expected)
        found = WrongWeight(name, meant.parameter, apart, rows, len(array), through=through)
        return found.in_columns(rows_off(array.T, expected.T)) if array.ndim == 2 else found

    def folds(self, shape: tuple[int, ...], *, layer: bool) -> Iterator[Fold]:
        """Yield what each norm makes of a ``layer``'s parameter that it may be folded into.

        As a factor and an offset of its shape, which take no memory. Without a layer's, as where it has no
        bias, a norm alone.
        """
        for axis, norms in self._norms.of(np.broadcast_to(np.float32(0), shape)):
            for number, scale in enumerate(norms.scale):
                if len(shape) == 1:
                    yield scale, norms.bias[number] - norms.mean[number] * scale
                elif layer:
                    by = spread(scale, shape, axis)
                    by = by.reshape(*by.shape, *[1] * (len(shape) - 2))
                    yield np.broadcast_to(by, shape), np.broadcast_to(0.0, shape)

    def stock(self, scope: str) -> list[str]:
        """Return the parameters of a module of torch's own, which uses them as they are."""
        with suppress(Exception):
            part = self._module.get_submodule(scope)
            stock = type(part).__module__.startswith("torch.nn.modules.")
            # What a norm was folded into is the norm's, by the exporter's word, and reads a layer's.
            if stock and not hasattr(part, "parametrizations") and terms_of(part) is None:
                return [
                    f"{scope}.{key}" for key, held in part._parameters.items() if held is not None
                ]
        return []

    def _is_mostly(self, array: Array, own: str) -> bool:
        """Return whether a weight has at least half of a tensor's numbers, where they stand there."""
        expected = self.value(own)
        if expected is None or expected.shape != array.shape:
            return False
        held = sum(int(np.count_nonzero(held_in(a, b))) for a, b in some_rows(array, expected))
        return 2 * held >= array.size

    def _moved(self, array: Array, own: str) -> bool:
        """Return whether a weight has the rows of a tensor of its shape, in whatever order."""
        expected = self.value(own)
        if expected is None or expected.shape != array.shape:
            return False
        return castable(expected.dtype, array.dtype) and same_rows(array, expected)

    def _same(self, array: Array, own: str) -> bool:
        expected = self.value(own)
        if expected is None or expected.shape != array.shape:
            return False
        return all(held_in(a, b).all() for a, b in some_rows(array, expected))

    def _folds(self, array: Array, own: str | None) -> Iterator[Mask]:
        """Yield which channels of a weight are some layer's with a norm folded into them."""
        if array.dtype.kind in "iu":
            return
        for axis, norms in self._norms.of(array):
            if array.ndim == 1:
                # Most layers before a norm have no bias, and a norm is folded into no other norm.
                yield from (mask for mask, _ in folded_bias(array, np.zeros_like(array), norms))
            for name in dict.fromkeys((*([own] if own else []), *self._layers(array))):
                expected = self.value(name)
                if expected is None or expected.shape != array.shape:
                    continue
                if array.ndim == 1:
                    yield from (mask for mask, _ in folded_bias(array, expected, norms))
                else:
                    yield from folded_into(array, expected, norms, axis)

    def _layers(self, array: Array) -> list[str]:
        """Return the tensors of a weight's shape that are of no batch norm."""
        return [
            name
            for name, tensor in self.tensors.items()
            if tensor.shape == array.shape and name not in self._norms.tensors
        ]

    def _transposed(self, array: Array) -> str | None:
        """Return the matrix, or the whole tensor, that a weight has the bits of."""
        for name, tensor in self.tensors.items():
            shape = tuple(tensor.shape)
            turn = array.ndim == 2 and shape == array.shape[::-1]
            if not turn and shape != array.shape:
                continue
            expected = self.value(name)
            if expected is None or not castable(expected.dtype, array.dtype):
                continue
            for other in ([expected] if shape == array.shape else []) + (
                [expected.T] if turn else []
            ):
                first = (slice(0, 1),) * array.ndim
                if all(equal_bits(other[part], array[part]) for part in (first, ...)):
                    return name
        return None


def _columns_off(array: Array, expected: Array) -> Mask:
    """Return which columns of a matrix have numbers that are not those of another."""
    held = [held_in(a, b).all(axis=0) for a, b in some_rows(array, expected)]
    return np.asarray(~np.logical_and.reduce(held))
