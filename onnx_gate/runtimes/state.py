"""The parts and tensors of a module, looked at one by one.

A module is the user's: it may override ``named_parameters`` or ``__len__``, hold TorchScript, or
hold tensors that have no values. What cannot be looked at is left out; nothing here raises.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from onnx_gate.runtimes.base import Array

_T = TypeVar("_T")

# Containers whose own length says whether something was added; another class's may run code.
_CONTAINERS = (list, tuple, dict, set, frozenset, bytearray, deque)
_KINDS = ("_parameters", "_buffers")
_LAZY = (UninitializedParameter, UninitializedBuffer)
_PLAIN = (type(None), bool, int, float, str)
_ACTS_DIFFERENTLY = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.MultiheadAttention,
    nn.RReLU,
)


def in_training(module: nn.Module) -> list[str]:
    """Return the names of the parts in training mode that compute something else in it."""
    return [
        name or type(part).__name__
        for name, part in parts(module)
        if isinstance(part, _ACTS_DIFFERENTLY) and part.training
    ]


def parts(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield every part of ``module`` once, itself first, with its dotted name."""
    seen: set[int] = set()
    pending = [("", module)]
    while pending:
        name, part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield name, part
        children = [
            (f"{name}.{key}" if name else str(key), child)
            for key, child in _items(part, "_modules")
            if isinstance(child, nn.Module)
        ]
        pending.extend(reversed(children))


def tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every parameter and buffer once, with its dotted name; lazy ones once they are made."""
    return (each for each in _held(module, _KINDS) if not isinstance(each[1], _LAZY))


def parameters(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield every parameter once."""
    return (tensor for _, tensor in _held(module, _KINDS[:1]) if not isinstance(tensor, _LAZY))


def buffers(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield every buffer once."""
    return (tensor for _, tensor in _held(module, _KINDS[1:]) if not isinstance(tensor, _LAZY))


def _held(module: nn.Module, kinds: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
    seen: set[int] = set()
    for name, part in parts(module):
        for kind in kinds:
            for key, tensor in _items(part, kind):
                if isinstance(tensor, torch.Tensor) and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{name}.{key}" if name else str(key)), tensor


def names(module: nn.Module) -> dict[int, tuple[str, ...]]:
    """Return all dotted names of each parameter and buffer, by its ``id``: tied ones have several."""
    found: dict[int, list[str]] = {}
    for name, part in parts(module):
        for kind in _KINDS:
            for key, tensor in _items(part, kind):
                if isinstance(tensor, torch.Tensor):
                    found.setdefault(id(tensor), []).append(f"{name}.{key}" if name else str(key))
    return {key: tuple(each) for key, each in found.items()}


def not_numbers(named: Iterable[tuple[str, torch.Tensor | None]]) -> list[str]:
    """Return the names of the floating-point tensors that have NaN or an infinity."""

    def has(tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())

    return [
        name for name, each in named if each is not None and _attempt(partial(has, each), False)
    ]


def uninitialized(module: nn.Module) -> list[str]:
    """Return the names of parameters and buffers that lazy modules have yet to give a shape."""
    return [name for name, tensor in _held(module, _KINDS) if isinstance(tensor, _LAZY)]


def shape(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the sizes, ``None`` where there are none yet."""
    return _attempt(lambda: tuple(tensor.shape), None)


def version(tensor: torch.Tensor) -> int:
    """Return how often the tensor was written to in place, 0 where it keeps no count."""
    # One made under inference_mode keeps none.
    return _attempt(lambda: int(tensor._version), 0)


def address(tensor: torch.Tensor) -> int:
    """Return where the values of a tensor, or of what it is a part of, lie, 0 where it has none."""
    return _attempt(lambda: tensor.untyped_storage().data_ptr() if tensor.numel() else 0, 0)


def is_shared(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor lie where other processes write to them, too."""
    return tensor.device.type == "cpu" and _attempt(tensor.is_shared, False)


def small_values(tensor: torch.Tensor, limit: int) -> Array | None:
    """Return a flat copy of at most ``limit`` elements' values, ``None`` where there are more.

    ``None`` as well for what has no values that could be copied.
    """

    def copied() -> Array | None:
        if tensor.numel() > limit:
            return None
        values = tensor.detach()
        if values.is_complex():
            values = torch.view_as_real(values)
        if values.is_quantized:
            values = values.dequantize()
        if values.layout != torch.strided:
            values = values.to_dense()
        array: Array = values.reshape(-1).to("cpu", torch.float64).numpy().copy()
        return array

    return _attempt(copied, None)


def take_values(module: nn.Module, other: nn.Module, but: Collection[str] = ()) -> None:
    """Give a module the parameters and buffers of another build of it, all ``but`` those of these names.

    What is the same already is not written to, and what has another form is left as it is.
    """
    theirs = dict(tensors(other))
    for name, tensor in tensors(module):
        value = theirs.get(name)
        if value is not None and name not in but:
            _attempt(functools.partial(_take, tensor, value), None)


def _take(tensor: torch.Tensor, value: torch.Tensor) -> None:
    alike = tensor.shape == value.shape and tensor.dtype == value.dtype
    if alike and not torch.equal(tensor, value):
        with torch.no_grad():
            tensor.copy_(value)


def attributes(module: nn.Module) -> dict[tuple[int, str], object]:
    """Return what the parts hold beside tensors: plain values, else which object and its length."""
    return {
        (index, name): value if type(value) in _PLAIN else (id(value), _length(value))
        for index, (_, part) in enumerate(parts(module))
        for name, value in _items(part, "__dict__")
    }


def own_attributes(module: nn.Module) -> dict[tuple[str, str], object]:
    """Return what every part holds under names of its own, but its mode, by its name and theirs."""
    return {
        (name, str(key)): value
        for name, part in parts(module)
        for key, value in _items(part, "__dict__")
        if key != "training"
    }


def is_plain(value: object) -> bool:
    """Return whether it is text, a number, a switch or ``None``."""
    return type(value) in _PLAIN


def equal_values(first: Array, second: Array) -> bool:
    """Return whether two copies hold the same values, NaN where there was NaN."""
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=True))


def _length(value: object) -> int:
    return _attempt(lambda: len(value), 0) if isinstance(value, _CONTAINERS) else 0


def _items(part: nn.Module, kind: str) -> list[tuple[str, Any]]:
    return _attempt(lambda: list(getattr(part, kind).items()), [])


def _attempt(look: Callable[[], _T], otherwise: _T) -> _T:
    with suppress(Exception):
        return look()
    return otherwise
