"""The PyTorch model as written: the untouched ``nn.Module``, called the way a user calls it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Outputs, Refusal, first_line
from onnx_gate.runtimes.binding import bind, signature_of
from onnx_gate.runtimes.outputs import USE_CACHE, Returned, describe, flatten
from onnx_gate.runtimes.tensors import to_array as to_array
from onnx_gate.runtimes.tensors import to_tensor as to_tensor


class Eager:
    """A module in ``eval()`` mode and the way to call it with NumPy arrays.

    ``inputs`` and ``outputs`` are the manifest's names, ``constants`` arguments of every call,
    ``caches`` the kinds of the parameters that are caches.
    ``returned`` is what its first call has returned, ``None`` before that call. ``left_out`` are
    numbers among the outputs that the graph does not have, and ``numbers`` the values that these
    were seen to have.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        inputs: Sequence[str],
        outputs: Iterable[str] | None = None,
        constants: Mapping[str, Any] | None = None,
        caches: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.binding = bind(module, inputs, constants, caches)
        self.fast_path = True
        self.returned: Returned | None = None
        self.left_out: frozenset[str] = frozenset()
        self.numbers: dict[str, list[Any]] = {}
        self._declared = None if outputs is None else tuple(outputs)

    @classmethod
    def of(cls, module: torch.nn.Module, spec: ModelSpec) -> Eager:
        """Return a module, and how it is called by the manifest."""
        return cls(module, tuple(spec.inputs), spec.outputs, spec.call, spec.caches)

    def with_module(self, module: torch.nn.Module) -> Eager:
        """Return the same way to call another module of the same class, and what is known of it."""
        twin = copy.copy(self)
        twin.module = module
        return twin

    def without_fast_path(self) -> Eager | None:
        """Return the same model with the fast path of multi-head attention off.

        ``None`` where it has no such layer. The fast path is taken in ``eval()`` only, drops
        padded positions, and answers otherwise than the layer itself where a row is all padding;
        exporters see the layer itself.
        """
        kinds = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
        if not any(isinstance(part, kinds) for _, part in state.parts(self.module)):
            return None
        twin = copy.copy(self)
        twin.fast_path = False
        return twin

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        mode: AbstractContextManager[Any] | None = None,
        ended: Callable[[Sequence[torch.Tensor]], object] | None = None,
    ) -> Outputs:
        """Call the module once on copies of ``inputs`` and return copies of its outputs.

        ``mode`` is entered around the call, and ``ended`` is given the outputs themselves.
        Raises ``Refusal`` with the exception's type and first line where ``forward`` raises.
        """
        tensors = {name: to_tensor(array) for name, array in inputs.items()}
        named = self._named(self._call(tensors, mode))
        for name, tensor in named:
            seen = self.numbers.setdefault(name, []) if name in self.left_out else None
            if seen is not None and tensor.item() not in seen:
                seen.append(tensor.item())
        kept = [(name, tensor) for name, tensor in named if name not in self.left_out]
        if ended is not None:
            ended([tensor for _, tensor in kept])
        return Outputs(
            tuple(name for name, _ in kept), tuple(to_array(tensor) for _, tensor in kept)
        )

    def run_tensors(
        self, inputs: Mapping[str, Array], *, mode: AbstractContextManager[Any] | None = None
    ) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]]:
        """Do as ``run`` does, and return the output tensors themselves."""
        return self.run_prepared(
            {name: to_tensor(array) for name, array in inputs.items()}, mode=mode
        )

    def run_prepared(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        mode: AbstractContextManager[Any] | None = None,
    ) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]]:
        """Call the module on exactly these tensors."""
        named = self._named(self._call(tensors, mode))
        kept = [(name, tensor) for name, tensor in named if name not in self.left_out]
        return tuple(name for name, _ in kept), tuple(tensor for _, tensor in kept)

    def _call(
        self, tensors: Mapping[str, torch.Tensor], mode: AbstractContextManager[Any] | None
    ) -> object:
        args, kwargs = self.binding.split(tensors)
        try:
            with torch.no_grad(), mode or nullcontext(), fast_path(self.fast_path):
                return self.module(*args, **kwargs)
        except Exception as error:
            raise Refusal(f"{type(error).__name__}: {first_line(error)}") from error

    def _named(self, value: object) -> list[tuple[str, torch.Tensor]]:
        if self.returned is None:
            signature = signature_of(self.module)
            self.returned = describe(
                value,
                self._declared,
                self.binding.caches,
                may_use_cache=signature is not None
                and USE_CACHE in signature.parameters
                and self.binding.constants.get(USE_CACHE) is not False,
            )
        names = self.returned.names
        return [(names.get(name, name), tensor) for name, tensor in flatten(value)]


@contextmanager
def fast_path(enabled: bool) -> Iterator[None]:
    """Let multi-head attention take its fast path, where it may, or not."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(before and enabled)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def seed_everything(seed: int) -> None:
    """Seed torch, NumPy and ``random``."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
