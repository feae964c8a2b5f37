"""The parameters and buffers of a module, by name, by rows, and with norms folded into them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.meant import Meant, meant, rows_off
from onnx_gate.verify.inspect.weight_bits import (
    FoldedNorms,
    Mask,
    all_among,
    bits_of,
    cast_to,
    castable,
    equal_bits,
    folded_bias,
    folded_into,
    hash_rows,
    held_in,
    is_rounded,
    largest_difference,
    same_rows,
    some_rows,
)
from onnx_gate.verify.inspect.wrong_weight import WrongWeight

# The scale, the mean and the bias of a batch norm, by channel, in float64.
_Terms = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
# How many rows are tried before all are.
_TRIED = 8
# Rows that tell whether two tensors have numbers in common.
_SOME = 64


class KnownWeights:
    """The parameters and buffers of a module, by name and by the hashes of their rows.

    ``load`` returns the values of those that the module does not hold itself, ``None`` for the others.
    ``written`` are the names of those that ``forward`` writes: a file has them as they were before.
    """

    def __init__(
        self,
        module: nn.Module,
        load: Callable[[str], torch.Tensor | None] | None = None,
        written: Collection[str] = (),
    ) -> None:
        self._module, self._load, self._written = module, load, written
        self._tensors = {
            name: tensor
            for name, tensor in state.tensors(module)
            if tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.numel()
            if name not in written
        }
        self._names = {name: each for each in state.names(module).values() for name in each}
        self._rows: dict[tuple[str, int], tuple[NDArray[np.uint64], list[str]]] = {}
        self._elements: dict[str, NDArray[np.unsignedinteger]] = {}
        self._norms: dict[int, FoldedNorms] | None = None
        self._groups: set[tuple[tuple[int, ...], int]] = set()
        self._of_norms: set[str] | None = None

    def named(self, name: str) -> str | None:
        """Return the parameter that a weight of the file is called after, if there is one."""
        for each in (name, name.partition(".")[2]):
            if each in self._tensors or (each not in self._written and self._at(each) is not None):
                return each
        return None

    def explain(self, array: Array, own: str | None) -> tuple[str, str | None] | tuple[None, None]:
        """Return how a weight follows from the module's, and from which one if it is that alone."""
        if own is not None and self._same(array, own):
            return "same", own
        turned = self._transposed(array)
        if turned is not None:
            return "rearranged", turned
        if any(channels.all() for channels in self._folds(array, own)):
            return "folded", None
        # Of those without a name matrices in a stack are told by their places: others are cut, and mixed.
        stacked = own is None and array.ndim > 2 and self.mostly(array) is not None
        if stacked or (
            own is not None and (self._is_mostly(array, own) or self._moved(array, own))
        ):
            return None, None  # a row stands where another belongs
        if array.ndim > 1:
            found = self._by_rows(array)
            if found is not None:
                return "rearranged", found or None
        if self._by_elements(array):
            return "rearranged", None
        # Of whole numbers that were cast, under a name of the exporter's, no bit is the same.
        alike = self.mostly(array) if own is None else None
        if alike is not None and self._same(alike[1], alike[0]):
            return "same", alike[0]
        return None, None

    def comparable(self, array: Array, own: str) -> bool:
        """Return whether a weight of a parameter's name that differs from it is certainly wrong.

        It is where most of it is the parameter's, as it is or with a norm folded into it, and where
        it is not rounded to fewer bits, and there is no norm that could be folded into it in a way
        that is not known here.
        """
        expected = self._of(own)
        if expected is None or expected.shape != array.shape:
            return False
        if self._is_mostly(array, own) or self._moved(array, own):
            return True
        if is_rounded(array, expected):
            return False  # to fewer bits, which is what a tolerance is there to judge
        if not self.norms(array):
            return True
        return any(2 * np.count_nonzero(each) > each.size for each in self._folds(array, own))

    def mostly(self, array: Array) -> tuple[str, Array] | None:
        """Return the tensor of which a weight has at least half of the numbers where they stand.

        Or all matrices of a stack. With the weight as that tensor has it: a product may read it transposed.
        """
        for turned in (array, array.T) if array.ndim == 2 else (array,):
            for name, tensor in self._tensors.items():
                if tensor.shape != turned.shape or not self._has_some(turned, name):
                    continue
                if self._is_mostly(turned, name):
                    return name, turned
        stack = self._by_rows(array) if array.ndim > 2 else None
        return (stack, array) if stack and self._moved(array, stack) else None

    def _has_some(self, array: Array, own: str) -> bool:
        """Return whether some rows of a weight have numbers of a tensor: most are another's, and large."""
        expected = self._of(own)
        if expected is None or not array.size:
            return False
        rows = np.linspace(0, len(array) - 1, min(len(array), _SOME)).astype(np.int64)
        return bool(held_in(array[rows], expected[rows]).any())

    def in_few_columns(self, array: Array, own: str) -> bool:
        """Return whether a matrix is a parameter but for less than half of its columns."""
        expected = self._of(own)
        if expected is None or array.ndim != 2:
            return False
        held = [held_in(a, b).all(axis=0) for a, b in some_rows(array, expected)]
        return bool(2 * np.count_nonzero(~np.logical_and.reduce(held)) < array.shape[1])

    def wrong(self, name: str, array: Array, own: str, instead: str | None = None) -> WrongWeight:
        """Return in what a weight is not the parameter ``own``."""
        expected = self._of(own)
        if expected is None or expected.shape != array.shape:
            return WrongWeight(name, own, 0.0, (), 0, instead)
        for _, norms in self.norms(array) if array.ndim == 1 else ():
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
        return WrongWeight(name, own, apart, listed, len(rows), instead, exchanged=exchanged)

    def meant(self, array: Array, own: str | None) -> Meant | None:
        """Return the parameter that a weight is near to, or has most numbers of."""
        shapes = (array.shape, array.shape[::-1]) if array.ndim == 2 else (array.shape,)
        names = [own] if own is not None else self.shaped(shapes)
        held = ((name, self._of(name)) for name in names)
        alike = ((n, t) for n, t in held if t is not None and castable(t.dtype, array.dtype))
        return meant(array, alike, self.norms(array), own)

    def off(self, name: str, array: Array, meant: Meant) -> WrongWeight:
        """Return in what a weight is not the parameter that it is meant to be, by the rows of that one."""
        through, expected = meant.through(array), meant.expected
        own = self._of(meant.parameter)
        if own is not None and array.ndim == 2 and expected.T.shape == own.shape:
            turned = largest_difference(expected.T, own)
            if expected.shape != own.shape or turned < largest_difference(expected, own):
                array, expected = array.T, expected.T
        rows = tuple(map(int, np.flatnonzero(rows_off(array, expected))))
        apart = largest_difference(array, expected)
        return WrongWeight(name, meant.parameter, apart, rows, len(array), through=through)

    def vectors(self) -> list[str]:
        """Return the names of the tensors of one axis."""
        return [name for name, tensor in self._tensors.items() if tensor.ndim == 1]

    def names(self, own: str) -> tuple[str, ...]:
        """Return all names of a tensor: a tied one has several."""
        return self._names.get(own, (own,))

    def has_form(self, array: Array, own: str | None) -> bool:
        """Return whether a tensor, that called ``own`` if there is one, has the shape of a weight."""
        if own is not None:
            expected = self._of(own)
            return expected is not None and expected.shape == array.shape
        return any(tensor.shape == array.shape for tensor in self._tensors.values())

    def shaped(self, shapes: Collection[tuple[int, ...]]) -> list[str]:
        """Return the names of the tensors of one of these shapes."""
        return [n for n, t in self._tensors.items() if t.shape in shapes]

    def norms(self, array: Array) -> list[tuple[int, FoldedNorms]]:
        """Return the batch norms with as many channels as one of the first two sizes, and its axis.

        Of a transposed convolution in groups, the second size is that of one group.
        """
        if self._norms is None:
            found: dict[int, list[_Terms]] = {}
            for _, part in state.parts(self._module):
                if (norm := _norm_of(part)) is not None:
                    found.setdefault(norm[0].size, []).append(norm)
            self._norms = {
                size: FoldedNorms(*map(np.stack, zip(*norms, strict=True)))
                for size, norms in found.items()
            }
            self._groups = {
                (tuple(part.weight.shape), part.groups)
                for _, part in state.parts(self._module)
                if isinstance(part, _TRANSPOSED) and part.groups > 1
            }
        grouped = {shape[1] * groups for shape, groups in self._groups if shape == array.shape}
        sizes = [*enumerate(array.shape[:2]), *((1, size) for size in sorted(grouped))]
        return [(axis, self._norms[size]) for axis, size in sizes if size in self._norms]

    def stock(self, scope: str) -> list[str]:
        """Return the parameters of a module of torch's own, which uses them as they are."""
        with suppress(Exception):
            part = self._module.get_submodule(scope)
            stock = type(part).__module__.startswith("torch.nn.modules.")
            # What a norm was folded into is the norm's, by the exporter's word, and reads a layer's.
            if stock and not hasattr(part, "parametrizations") and _norm_of(part) is None:
                return [
                    f"{scope}.{key}" for key, held in part._parameters.items() if held is not None
                ]
        return []

    def alike(self, own: str, other: str) -> bool:
        """Return whether two tensors have the same sizes, in whatever order, and are not single numbers."""
        a, b = self._of(own), self._of(other)
        return a is not None and b is not None and sorted(a.shape) == sorted(b.shape)

    def differ(self, own: str, other: str) -> bool:
        """Return whether two tensors of the module hold other values."""
        a, b = self._of(own), self._of(other)
        return a is None or b is None or a.shape != b.shape or not equal_bits(a, b)

    def equal(self, own: str) -> int:
        """Return how many other tensors of the module hold the same values and are not tied to it."""
        known = self._tensors[own]
        alike = (n for n, t in self._tensors.items() if t.shape == known.shape)
        untied = (n for n in alike if self._tensors[n].data_ptr() != known.data_ptr())
        return sum(not self.differ(own, name) for name in untied)

    def value(self, own: str) -> Array | None:
        """Return a tensor of the module, ``None`` where it has none of that name."""
        return self._of(own)

    def inside(self, scope: str, rows: int) -> list[str]:
        """Return the names of the tensors in a part that have so many rows."""
        return [n for n in self.within(scope) if self._tensors[n].shape[:1] == (rows,)]

    def within(self, scope: str) -> list[str]:
        """Return the names of the tensors in a part, or in the module."""
        prefix = f"{scope}." if scope else ""
        return [n for n in self._tensors if n.startswith(prefix)]

    def distance(self, own: str, other: str) -> float:
        """Return the largest difference of two tensors, 0.0 where their shapes differ."""
        a, b = self._of(own), self._of(other)
        if a is None or b is None or a.shape != b.shape:
            return 0.0
        return largest_difference(a, b)

    def _is_mostly(self, array: Array, own: str) -> bool:
        """Return whether a weight has at least half of a tensor's numbers, where they stand there."""
        expected = self._of(own)
        if expected is None or expected.shape != array.shape:
            return False
        held = sum(int(np.count_nonzero(held_in(a, b))) for a, b in some_rows(array, expected))
        return 2 * held >= array.size

    def _moved(self, array: Array, own: str) -> bool:
        """Return whether a weight has the rows of a tensor of its shape, in whatever order."""
        expected = self._of(own)
        if expected is None or expected.shape != array.shape:
            return False
        return castable(expected.dtype, array.dtype) and same_rows(array, expected)

    def _same(self, array: Array, own: str) -> bool:
        expected = self._of(own)
        if expected is None or expected.shape != array.shape:
            return False
        return all(held_in(a, b).all() for a, b in some_rows(array, expected))

    def _folds(self, array: Array, own: str | None) -> Iterator[Mask]:
        """Yield which channels of a weight are some layer's with a norm folded into them."""
        if array.dtype.kind in "iu":
            return
        for axis, norms in self.norms(array):
            if array.ndim == 1:
                # Most layers before a norm have no bias, and a norm is folded into no other norm.
                yield from (mask for mask, _ in folded_bias(array, np.zeros_like(array), norms))
            for name in dict.fromkeys((*([own] if own else []), *self._layers(array))):
                expected = self._of(name)
                if expected is None or expected.shape != array.shape:
                    continue
                if array.ndim == 1:
                    yield from (mask for mask, _ in folded_bias(array, expected, norms))
                else:
                    yield from folded_into(array, expected, norms, axis)

    def _layers(self, array: Array) -> list[str]:
        """Return the tensors of a weight's shape that are of no batch norm."""
        if self._of_norms is None:
            self._of_norms = {
                f"{name}.{key}" if name else key
                for name, part in state.parts(self._module)
                if _norm_of(part) is not None
                for key in ("weight", "bias", "running_mean", "running_var")
            }
        return [
            name
            for name, tensor in self._tensors.items()
            if tensor.shape == array.shape and name not in self._of_norms
        ]

    def _transposed(self, array: Array) -> str | None:
        """Return the matrix, or the whole tensor, that a weight has the bits of."""
        for name, tensor in self._tensors.items():
            shape = tuple(tensor.shape)
            turn = array.ndim == 2 and shape == array.shape[::-1]
            if not turn and shape != array.shape:
                continue
            expected = self._of(name)
            if expected is None or not castable(expected.dtype, array.dtype):
                continue
            for other in ([expected] if shape == array.shape else []) + (
                [expected.T] if turn else []
            ):
                first = (slice(0, 1),) * array.ndim
                if all(equal_bits(other[part], array[part]) for part in (first, ...)):
                    return name
        return None

    def _by_rows(self, array: Array) -> str | None:
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
            for name, tensor in self._tensors.items():
                if tensor.ndim < 2 or length not in (
                    tensor.shape[-1],
                    tensor.numel() // len(tensor),
                ):
                    continue
                array = self._of(name)
                if array is None or not castable(array.dtype, dtype):
                    continue
                hashes.append(hash_rows(cast_to(array, dtype).reshape(-1, length)))
                owners += [name] * len(hashes[-1])
            every = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
            order = np.argsort(every, kind="stable")
            self._rows[key] = every[order], [owners[i] for i in order]
        return self._rows[key]

    def _by_elements(self, array: Array) -> bool:
        """Return whether each number is one of the module's vectors: biases, end to end or cut."""
        if array.dtype.kind in "iu":
            return False
        key = str(array.dtype)
        if key not in self._elements:
            vectors = [self._of(name) for name, t in self._tensors.items() if t.ndim < 2]
            made = [
                bits_of(cast_to(v, array.dtype)).reshape(-1)
                for v in vectors
                if v is not None and castable(v.dtype, array.dtype)
            ]
            self._elements[key] = np.unique(np.concatenate(made)) if made else np.zeros(0, np.uint8)
        return bool(np.isin(bits_of(array), self._elements[key]).all())

    def _at(self, name: str) -> torch.Tensor | None:
        with suppress(Exception):
            found = operator.attrgetter(name)(self._module)
            return found if isinstance(found, torch.Tensor) else None
        return None

    def _of(self, name: str) -> Array | None:
        tensor = self._load(name) if self._load is not None else None
        tensor = self._tensors.get(name) if tensor is None else tensor
        tensor = self._at(name) if tensor is None else tensor
        if tensor is None:
            return None
        with suppress(Exception):
            held = tensor.detach().cpu().contiguous()
            if held.dtype == torch.bfloat16:
                bits: Array = held.view(torch.int16).numpy()
                halves: Array = bits.view(ml_dtypes.bfloat16)
                return halves
            array: Array = held.numpy()
            return array
        return None


def _norm_of(part: nn.Module) -> _Terms | None:
    """Return what folding a module into the layer before it does, ``None`` for all but batch norms."""
    with suppress(Exception):
        mean, var, weight, bias = (
            None if held is None else held.detach().double().cpu().numpy()
            for held in (
                getattr(part, n) for n in ("running_mean", "running_var", "weight", "bias")
            )
        )
        if mean is not None and var is not None:
            scale = 1 / np.sqrt(var + getattr(part, "eps", 0.0))
            return (
                scale if weight is None else scale * weight,
                mean,
                np.zeros_like(scale) if bias is None else bias,
            )
    return None
