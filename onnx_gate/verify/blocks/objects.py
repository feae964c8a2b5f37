"""Objects that blocks hand on beside tensors, as caches are: taken apart, made anew, written to."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

# What is the same on both sides, and what nobody writes to.
PLAIN = (
    type(None),
    *(bool, int, float, complex, str, bytes),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, slice, range, type, Enum),
    *(torch.SymInt, torch.SymFloat, torch.SymBool),
)
_COUNTED = (list, tuple)
# Of a class's own; what is called has more to it than attributes.
_NO_STATE = (torch.nn.Module, torch.Generator)

Tensors = Mapping[str, torch.Tensor]


class Foreign(Exception):
    """What cannot be taken apart, in words."""


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor: it is the one at ``path``, as in ``cache.layers.0.keys``."""

    path: str


@dataclass(frozen=True)
class KnownObject:
    """Stands for one of the objects themselves, by its name."""

    name: str


@dataclass(frozen=True)
class Parts:
    """What an object of a class holds: by attributes, or by the keys or places of a container."""

    kind: type
    held: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Objects:
    """Objects by name, taken apart, and all of their tensors by path."""

    parts: Mapping[str, Parts] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)

    @classmethod
    def of(cls, named: Mapping[str, object]) -> Objects:
        """Take objects apart; raises ``Foreign`` where that is not all that they are."""
        taking = _Taking({id(value): name for name, value in named.items()})
        parts = {name: taking.parts(name, value) for name, value in named.items()}
        return cls(parts, taking.tensors)

    def restored(self, tensors: Tensors, objects: Mapping[str, object]) -> dict[str, object]:
        """Let ``objects`` be as these were, and return them, with new ones for those that are not there.

        ``tensors`` are by path; where there is none, an object keeps the tensor that it has.
        """
        tensors = {**Objects.of(objects).tensors, **tensors}
        every = {
            name: objects[name] if name in objects else object.__new__(parts.kind)
            for name, parts in self.parts.items()
        }
        for name, parts in self.parts.items():
            state = {key: _made(held, every, tensors) for key, held in parts.held}
            vars(every[name]).clear()
            vars(every[name]).update(state)
        return every


@dataclass
class _Taking:
    """One way through some objects, each of which is met once."""

    names: Mapping[int, str]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)

    def parts(self, path: str, value: object) -> Parts:
        """Return what an object holds."""
        if id(value) in self.met:  # of two places one would not see what is written to the other
            raise Foreign(f"a value of class {type(value).__name__} in two places")
        self.met.add(id(value))
        held = list(_held(value))
        return Parts(type(value), tuple((k, self._node(f"{path}.{k}", v)) for k, v in held))

    def _node(self, path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors[path] = value
            return Slot(path)
        if isinstance(value, PLAIN):
            return value
        if id(value) in self.names:
            return KnownObject(self.names[id(value)])
        return self.parts(path, value)


def _held(value: Any) -> Iterator[tuple[Any, Any]]:
    if type(value) in _COUNTED:
        yield from enumerate(value)
    elif type(value) is dict:
        yield from value.items()
    elif _is_ordinary(value):
        yield from vars(value).items()
    else:
        raise Foreign(f"a value of class {type(value).__name__}")


def _is_ordinary(value: Any) -> bool:
    """Return whether an object is its class and its attributes, and ``copy`` would say so."""
    if isinstance(value, _NO_STATE) or callable(value) or not hasattr(value, "__dict__"):
        return False
    try:
        how, arguments, state, *more = value.__reduce_ex__(4)
    except Exception:  # the class is the user's
        return False
    own = state is None or (isinstance(state, dict) and state.keys() == vars(value).keys())
    is_new = how is copyreg.__newobj__ and arguments == (type(value),)  # type: ignore[attr-defined]
    return is_new and own and not any(more)


def _made(node: Any, objects: Mapping[str, object], tensors: Tensors) -> Any:
    if isinstance(node, Slot):
        return tensors[node.path]
    if isinstance(node, KnownObject):
        return objects[node.name]
    if not isinstance(node, Parts):
        return node
    held = {key: _made(each, objects, tensors) for key, each in node.held}
    if node.kind is dict:
        return held
    if node.kind in _COUNTED:
        return node.kind(held.values())
    made: Any = object.__new__(node.kind)
    vars(made).update(held)
    return made
