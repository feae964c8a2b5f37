"""What a PyTorch model returns, as a flat list of named leaves in the order of ``torch.export``."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest.nesting import below
from onnx_gate.runtimes.base import first_line
from onnx_gate.runtimes.binding import Binding

SINGLE = "output"
# Where a module that stands in for another keeps the ``forward`` that was set on that one.
_FORWARD = "_forward_of_its_own"

# What a layer of a cache of transformers' may hold, and what it is called in a file.
_STATES = {"keys": "key", "values": "value", "conv_states": "conv", "recurrent_states": "recurrent"}

# The argument that keeps a cache from being returned, by transformers' name for it.
USE_CACHE = "use_cache"

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class _OpaqueError(Exception):
    """A value that cannot be taken apart, where it is, and why if there is more to say."""

    def __init__(self, name: str, value: object, reason: str = "") -> None:
        super().__init__(name, reason)
        self.name, self.kind, self.reason = name, type(value), reason


def leaves(value: object, *, may_use_cache: bool = False) -> list[tuple[str, Any]]:
    """Return ``(name, leaf)`` for every tensor, number and string in ``value``, in a stable order.

    Names are paths: a dictionary's key, a field, or the index in a tuple, joined with dots
    (``past.0.key``); a single leaf is called ``output``. ``None`` stands for an output that is not
    there. Numbers are Python's, or symbolic while ``torch.export`` traces. ``may_use_cache`` says that
    the module can be told not to return a cache, and has not been.

    Raises ``GateError`` of kind ``unverified`` where a leaf is something else.
    """
    try:
        return [(name or SINGLE, leaf) for name, leaf in _walk("", value)]
    except RecursionError as error:
        raise _unverified(_OpaqueError("", value, "it holds itself"), may_use_cache) from error
    except _OpaqueError as what:
        raise _unverified(what, may_use_cache) from what.__cause__


def flatten(value: object) -> list[tuple[str, torch.Tensor]]:
    """Return ``(name, tensor)`` for every tensor and number in ``value``; see ``leaves``.

    A number is a scalar tensor, as it is in a graph. Strings are left out: no graph has any.
    """
    return [
        (name, leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf))
        for name, leaf in leaves(value)
        if not isinstance(leaf, str)
    ]


def in_graph(value: object) -> list[tuple[str, Any]]:
    """Return what a graph holds of ``value``, which was returned while the module was traced.

    A number that depends on a size is symbolic then, or a tensor; any other is a constant, which
    exporters have no output for.
    """
    kinds = (torch.Tensor, *_SYMBOLIC)
    return [(name, leaf) for name, leaf in leaves(value) if isinstance(leaf, kinds)]


@dataclasses.dataclass(frozen=True)
class Returned:
    """What a first call has returned.

    ``names`` are those of its tensors and numbers, each with the manifest's name for it, ``numbers``
    those of the numbers (the manifest's). ``strings`` are by their own names. ``plain`` says that
    exporters can take it apart, and find nothing but tensors in it, in the same order.
    """

    names: Mapping[str, str]
    numbers: frozenset[str]
    strings: Mapping[str, str]
    plain: bool


def describe(
    value: object,
    declared: Sequence[str] | None,
    caches: Sequence[str] = (),
    *,
    may_use_cache: bool = False,
) -> Returned:
    """Return what ``value`` is made of, by the names that the manifest has for its outputs.

    The manifest may leave out the numbers, or name only some of the outputs where it calls them as
    the model does. ``caches`` are the parameters that take a cache: one that is returned under the
    same name is called ``present``, as it is in every decoder's file, because no two values of a
    graph may have one name. Raises ``GateError`` (OG115) where it names another number of outputs,
    and as ``leaves`` does.
    """
    every = leaves(value, may_use_cache=may_use_cache)
    names = [name for name, leaf in every if not isinstance(leaf, str)]
    tensors = [name for name, leaf in every if isinstance(leaf, torch.Tensor)]
    renamed = {name: _present(name, caches) for name in names}
    own = list(renamed.values())
    if declared is not None and not all(below(name, own) for name in declared):
        named = next((n for n in (names, tensors) if len(n) == len(declared)), None)
        if named is None:
            raise codes.OG115.error(
                f"the manifest names {len(declared)} outputs ({', '.join(declared)}) and the model "
                f"returns {len(names)}: {', '.join(names)}"
            )
        renamed |= zip(named, declared, strict=True)
    return Returned(
        renamed,
        frozenset(renamed[name] for name in names if name not in tensors),
        {name: leaf for name, leaf in every if isinstance(leaf, str)},
        _is_plain(value, every),
    )


def _is_plain(value: object, every: Sequence[tuple[str, Any]]) -> bool:
    """Return whether torch's pytree finds in ``value`` what the gate does, and tensors alone."""
    try:
        parts = [part for part in pytree.tree_leaves(value) if part is not None]
    except Exception:  # a class may be registered that is not taken apart in every state
        return False
    return all(isinstance(part, torch.Tensor) for part in parts) and [
        id(part) for part in parts
    ] == [id(leaf) for _, leaf in every]


def _present(name: str, caches: Sequence[str]) -> str:
    root, dot, rest = name.partition(".")
    if not dot or root not in caches:
        return name
    return f"present.{rest}" if len(caches) == 1 else f"present_{root}.{rest}"


@contextmanager
def flat_outputs(module: torch.nn.Module, binding: Binding | None = None) -> Iterator[list[str]]:
    """Let ``module`` return a tuple of what a graph can hold, which every exporter understands.

    With ``binding`` it takes its inputs by position too, in that order, or by their names. Yields
    the names of what it returned when it was last called.
    """
    original = module.forward
    kept: list[str] = []

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if binding is not None:
            args, kwargs = binding.split(binding.named(args, kwargs))
        kept[:], value = _flat(original(*args, **kwargs))
        return value

    if binding is not None:
        forward.__signature__ = binding.signature  # type: ignore[attr-defined]
    with _replaced_forward(module, forward):
        yield kept


def bound_inputs(module: torch.nn.Module, binding: Binding) -> torch.nn.Module:
    """Return the module as one that takes its inputs alone, as tensors, by position or by name.

    Where these are put into containers it returns no containers either, which exporters may not
    know. A call that brings anything else has its own arguments, and goes to ``forward`` as it is.
    It has the module's parameters, submodules and hooks, and the module itself is left alone: of a
    copy of what is returned, ``forward`` computes with what the copy holds.
    """
    kind = type(module)

    @functools.wraps(kind.forward)
    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        original = vars(self).get(_FORWARD) or functools.partial(kind.forward, self)
        values = binding.named(args, kwargs)
        tensors = all(isinstance(value, torch.Tensor) for value in values.values())
        if not tensors or set(values) != set(binding.order):
            return original(*args, **kwargs)
        args, kwargs = binding.split(values)
        value = original(*args, **kwargs)
        return _flat(value)[1] if binding.nested else value

    if binding.nested:
        own = next(iter(inspect.signature(kind.forward).parameters.values()))
        forward.__signature__ = binding.signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *binding.signature.parameters.values()]
        )
    stand_in: Any = type(
        kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__}
    )
    stand_in.__qualname__ = kind.__qualname__
    bound: torch.nn.Module = stand_in.__new__(stand_in)
    held = dict(vars(module))
    if "forward" in held:  # a function that was set on the module, and not its class's
        held[_FORWARD] = held.pop("forward")
    vars(bound).update(held)
    return bound


def _flat(value: object) -> tuple[list[str], Any]:
    """Return the names of what a graph can hold of ``value``, and that itself."""
    named = in_graph(value)
    names = [name for name, _ in named]
    return names, named[0][1] if names == [SINGLE] else tuple(leaf for _, leaf in named)


@contextmanager
def _replaced_forward(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


def _walk(prefix: str, value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (torch.Tensor, str, bool, int, float, *_SYMBOLIC)):
        yield prefix, value
    elif value is not None:
        for key, child in _children(prefix, value):
            yield from _walk(f"{prefix}.{key}" if prefix else key, child)


def _children(name: str, value: object) -> list[tuple[str, Any]]:
    """Return what ``value`` holds: as torch's pytree has it, a dataclass's fields, a cache's layers.

    Raises ``_OpaqueError`` where it cannot be taken apart.
    """
    try:
        children = _children_of(value)
    except RecursionError:
        raise
    except Exception as error:  # the class is the user's
        reason = f"taking it apart raised {type(error).__name__}: {first_line(error)}"
        raise _OpaqueError(name, value, reason) from error
    if children is None:
        raise _OpaqueError(name, value)
    return children


def _children_of(value: object) -> list[tuple[str, Any]] | None:
    layers = _cached(value)
    if layers is not None:
        return layers
    if not pytree.tree_is_leaf(value):
        children = pytree.tree_flatten(value, is_leaf=lambda inner: inner is not value)[0]
        return list(zip(_keys(value, children), children, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [(field.name, getattr(value, field.name, None)) for field in fields]
    if isinstance(value, Mapping):
        return [(str(key), inner) for key, inner in value.items()]
    return None


def _keys(value: object, children: list[Any]) -> list[str]:
    """Return names for the children of a pytree's node: not every registered class gives them keys."""
    kind = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if kind is not None and kind.flatten_with_keys_fn is not None:
        return [_key(path) for path, _ in kind.flatten_with_keys_fn(value)[0]]
    if isinstance(value, Mapping) and len(value) == len(children):
        return [str(key) for key in value]
    held = vars(value) if hasattr(value, "__dict__") else {}
    names = {id(inner): str(name) for name, inner in held.items()}
    if len({id(child) for child in children} & names.keys()) == len(children):
        return [names[id(child)] for child in children]
    return [str(index) for index in range(len(children))]


def _key(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _cached(value: object) -> list[tuple[str, Any]] | None:
    """Return the layers of a cache of transformers', ``None`` for anything else.

    Known by its shape, so that every version is served: ``layers`` that hold keys and values or the
    states of a recurrence, two lists of tensors, or two caches of an encoder-decoder's.
    """
    if isinstance(value, (Mapping, list, tuple, torch.nn.Module)):
        return None
    halves = {"decoder": "self_attention_cache", "encoder": "cross_attention_cache"}
    if all(hasattr(value, half) for half in halves.values()):
        inner = {name: dict(_cached(getattr(value, a)) or ()) for name, a in halves.items()}
        layers = dict.fromkeys(index for half in inner.values() for index in half)
        return [(i, {name: half.get(i) for name, half in inner.items()}) for i in layers]
    held = getattr(value, "layers", None)
    if isinstance(held, (list, tuple)):
        states = [
            {name: getattr(layer, kept) for kept, name in _STATES.items() if hasattr(layer, kept)}
            for layer in held
        ]
        if all(states):
            return [(str(index), inner) for index, inner in enumerate(states)]
    keys, values = getattr(value, "key_cache", None), getattr(value, "value_cache", None)
    if isinstance(keys, (list, tuple)) and isinstance(values, (list, tuple)):
        pairs = enumerate(zip(keys, values, strict=True))
        return [(str(index), {"key": key, "value": inner}) for index, (key, inner) in pairs]
    return None


def _unverified(what: _OpaqueError, may_use_cache: bool) -> GateError:
    kind = f"{what.kind.__module__}.{what.kind.__qualname__}"
    remedy = "return tensors, or tuples, dictionaries and dataclasses of them"
    if may_use_cache and "cache" in what.kind.__name__.lower():
        remedy = f"leave it out, call: {{{USE_CACHE}: false}}, or {remedy}"
    return codes.OG107.error(
        f"the model returns a {kind}{f' at {what.name}' if what.name else ''}, which neither the gate "
        f"nor torch.export can take apart: {what.reason or remedy}"
    )
