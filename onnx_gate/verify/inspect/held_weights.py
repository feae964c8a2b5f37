"""The parameters and buffers of a module, by their names."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property

import ml_dtypes
import torch
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.weight_bits import equal_bits, largest_difference


class HeldWeights:
    """The parameters and buffers of a module.

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
        self.tensors = {
            name: tensor
            for name, tensor in state.tensors(module)
            if tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.numel()
            if name not in written
        }
        self._names = {name: each for each in state.names(module).values() for name in each}

    @cached_property
    def forms(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of all floating-point tensors, also of those that are loaded when asked for."""
        every = (
            (n, t)
            for n, t in state.tensors(self._module)
            if n not in self._written and t.is_floating_point()
        )
        return {
            name: tuple(tensor.shape)
            for name, tensor in every
            if name in self.tensors or (self._load is not None and self._load(name) is not None)
        }

    def named(self, name: str) -> str | None:
        """Return the parameter that a weight of the file is called after, if there is one."""
        for each in (name, name.partition(".")[2]):
            if each in self.tensors or (each not in self._written and self._at(each) is not None):
                return each
        return None

    def names(self, own: str) -> tuple[str, ...]:
        """Return all names of a tensor: a tied one has several."""
        return self._names.get(own, (own,))

    def has_form(self, array: Array, own: str | None) -> bool:
        """Return whether a tensor, that called ``own`` if there is one, has the shape of a weight."""
        if own is not None:
            expected = self.value(own)
            return expected is not None and expected.shape == array.shape
        return any(tensor.shape == array.shape for tensor in self.tensors.values())

    def shaped(self, shapes: Collection[tuple[int, ...]]) -> list[str]:
        """Return the names of the tensors of one of these shapes."""
        return [n for n, t in self.tensors.items() if t.shape in shapes]

    def vectors(self) -> list[str]:
        """Return the names of the tensors of one axis."""
        return [name for name, tensor in self.tensors.items() if tensor.ndim == 1]

    def alike(self, own: str, other: str) -> bool:
        """Return whether two tensors have the same sizes, in whatever order, and are not single numbers."""
        a, b = self.value(own), self.value(other)
        return a is not None and b is not None and sorted(a.shape) == sorted(b.shape)

    def differ(self, own: str, other: str) -> bool:
        """Return whether two tensors of the module hold other values."""
        a, b = self.value(own), self.value(other)
        return a is None or b is None or a.shape != b.shape or not equal_bits(a, b)

    def equal(self, own: str) -> int:
        """Return how many other tensors of the module hold the same values and are not tied to it."""
        known = self.tensors[own]
        alike = (n for n, t in self.tensors.items() if t.shape == known.shape)
        untied = (n for n in alike if self.tensors[n].data_ptr() != known.data_ptr())
        return sum(not self.differ(own, name) for name in untied)

    def inside(self, scope: str, rows: int) -> list[str]:
        """Return the names of the tensors in a part that have so many rows."""
        return [n for n in self.within(scope) if self.tensors[n].shape[:1] == (rows,)]

    def within(self, scope: str) -> list[str]:
        """Return the names of the tensors in a part, or in the module."""
        prefix = f"{scope}." if scope else ""
        return [n for n in self.tensors if n.startswith(prefix)]

    def distance(self, own: str, other: str) -> float:
        """Return the largest difference of two tensors, 0.0 where their shapes differ."""
        a, b = self.value(own), self.value(other)
        if a is None or b is None or a.shape != b.shape:
            return 0.0
        return largest_difference(a, b)

    def value(self, name: str) -> Array | None:
        """Return a tensor of the module, ``None`` where it has none of that name."""
        tensor = self._load(name) if self._load is not None else None
        tensor = self.tensors.get(name) if tensor is None else tensor
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

    def _at(self, name: str) -> torch.Tensor | None:
        with suppress(Exception):
            found = operator.attrgetter(name)(self._module)
            return found if isinstance(found, torch.Tensor) else None
        return None
