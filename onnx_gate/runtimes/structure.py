"""What a parameter of ``forward`` takes that holds several tensors, and how it is put together.

Of which class each part is, the annotation or the default of the parameter says: a dataclass, a
NamedTuple, a dictionary, a list, a tuple, a cache of transformers', or any class that takes the names
as keywords. Where neither says, names make a dictionary and numbers a list.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import Parameter
from typing import Any

from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest.nesting import Tree, cache_tensors, is_sequence, leaves
from onnx_gate.runtimes.base import first_line

Make = Callable[[Mapping[str, Any]], Any]
"""From the values of all inputs, by name, to what the parameter takes: a new one at each call."""

_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_NOTHING = (type(None), Parameter.empty)
_UNIONS = (typing.Union, types.UnionType)


@dataclasses.dataclass(frozen=True)
class Nested:
    """A parameter that is put together of the inputs called ``names``."""

    names: tuple[str, ...]
    make: Make
    is_cache: bool = False


def nested(
    root: str, tree: Mapping[str, Tree], kind: str | None, annotation: Any, default: Any
) -> Nested:
    """Return how the parameter ``root`` is put together; ``kind`` is that of a cache.

    Raises ``GateError`` of kind ``build`` where its class does not take these names.
    """
    kind = kind or (_CACHE if _is_cache(root, tree, annotation) else None)
    if kind is not None:
        return Nested(tuple(leaves(tree)), _cache(tree, kind), is_cache=True)
    return Nested(tuple(leaves(tree)), _make(root, tree, annotation, default))


def annotated(module: nn.Module) -> dict[str, Any]:
    """Return the annotations of ``forward``, without those that cannot be looked up."""
    forward: Any = module.forward
    with suppress(Exception):
        return typing.get_type_hints(forward)
    function = inspect.unwrap(getattr(forward, "__func__", forward))
    known: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        with suppress(Exception):
            known |= typing.get_type_hints(alone, getattr(function, "__globals__", {}))
    return known


def _make(name: str, tree: Tree, annotation: Any, default: Any = None) -> Make:
    if isinstance(tree, str):
        return lambda values: values[tree]
    for kind in (*_kinds(annotation), *([type(default)] if _holds(default) else [])):
        made = _of_kind(name, tree, kind)
        if made is not None:
            return made
    made = _of_kind(name, tree, list if is_sequence(tree) else dict)
    assert made is not None
    return made


def _holds(default: Any) -> bool:
    return default is not None and default is not Parameter.empty


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the classes, with their arguments, that an annotation names."""
    origin = typing.get_origin(annotation)
    if origin in _UNIONS:
        for each in typing.get_args(annotation):
            yield from _kinds(each)
    elif origin is typing.Annotated:
        yield from _kinds(typing.get_args(annotation)[0])
    elif isinstance(annotation, typing.TypeVar):
        yield from _kinds(annotation.__bound__)
    elif isinstance(origin or annotation, type) and annotation not in _NOTHING:
        yield annotation


def _of_kind(name: str, tree: Mapping[str, Tree], kind: Any) -> Make | None:
    """Return how a value of the kind is made, ``None`` where it is no container of this sort."""
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if is_sequence(tree):
        return _counted(name, list(tree.values()), origin, arguments)
    fields = _fields(origin)
    if fields is not None:
        _need_fields(name, tree, origin, fields)
        hints = _hints(origin)
        made = {key: _make(f"{name}.{key}", t, hints.get(key)) for key, t in tree.items()}
        return lambda values: origin(**{key: make(values) for key, make in made.items()})
    if issubclass(origin, (Mapping, collections.UserDict)) or origin is dict:
        inner = arguments[1] if len(arguments) == 2 else None
        made = {key: _make(f"{name}.{key}", each, inner) for key, each in tree.items()}
        whole: Callable[[Any], Any] = dict if inspect.isabstract(origin) else origin
        return lambda values: whole({key: make(values) for key, make in made.items()})
    if origin in (object, Any) or not _takes(origin, tree):
        return None
    made = {key: _make(f"{name}.{key}", each, None) for key, each in tree.items()}
    return lambda values: origin(**{key: make(values) for key, make in made.items()})


def _counted(name: str, trees: list[Tree], origin: Any, arguments: Sequence[Any]) -> Make | None:
    kinds = list(arguments[:1]) * len(trees)
    if origin is tuple:
        if len(arguments) == len(trees) and Ellipsis not in arguments:
            kinds = list(arguments)
    elif issubclass(origin, tuple) and hasattr(origin, "_fields"):
        if len(origin._fields) < len(trees):
            raise _misfit(name, f"{origin.__name__} has {len(origin._fields)} fields")
        hints = _hints(origin)
        kinds = [hints.get(field) for field in origin._fields[: len(trees)]]
    elif not (issubclass(origin, list) or origin in _LISTS):
        return None
    kinds = kinds or [None] * len(trees)
    made = [_make(f"{name}.{i}", t, k) for i, (t, k) in enumerate(zip(trees, kinds, strict=True))]
    if hasattr(origin, "_fields"):
        return lambda values: origin(*(make(values) for make in made))
    whole: Callable[[Iterable[Any]], Any] = list if inspect.isabstract(origin) else origin
    return lambda values: whole(make(values) for make in made)


def _fields(origin: Any) -> dict[str, bool] | None:
    """Return the fields of a dataclass or NamedTuple, and which of them it needs."""
    if dataclasses.is_dataclass(origin):
        empty = dataclasses.MISSING
        return {
            f.name: f.default is empty and f.default_factory is empty
            for f in dataclasses.fields(origin)
            if f.init
        }
    if issubclass(origin, tuple) and hasattr(origin, "_fields"):
        return {field: field not in origin._field_defaults for field in origin._fields}
    return None


def _need_fields(
    name: str, tree: Mapping[str, Tree], origin: type, fields: Mapping[str, bool]
) -> None:
    """Raise ``GateError`` unless the class has these fields and needs no others."""
    for key in tree:
        if key not in fields:
            near = difflib.get_close_matches(key, [f for f in fields if f not in tree], 1, 0.6)
            hint = f" (is it {name}.{near[0]}?)" if near else ""
            raise _misfit(
                f"{name}.{key}", f"{origin.__name__} has the fields {', '.join(fields)}{hint}"
            )
    lacking = [key for key, needed in fields.items() if needed and key not in tree]
    if lacking:
        listed = " and ".join(f"{name}.{key}" for key in lacking)
        raise _misfit(name, f"{origin.__name__} needs {listed} among the inputs as well")


def _hints(origin: type) -> dict[str, Any]:
    with suppress(Exception):
        return typing.get_type_hints(origin)
    return {}


def _takes(origin: Any, tree: Mapping[str, Tree]) -> bool:
    """Return whether a class can be made of these names."""
    if issubclass(origin, (str, bytes, int, float)):
        return False
    try:
        inspect.signature(origin).bind(**dict.fromkeys(tree))
    except (TypeError, ValueError):
        return False
    return True


def _misfit(name: str, why: str) -> GateError:
    return codes.OG127.error(f"the input {name!r} does not fit what forward takes: {why}")


# --- caches ---------------------------------------------------------------------------------------

_CACHE = "dynamic"


def _is_cache(root: str, tree: Mapping[str, Tree], annotation: Any) -> bool:
    """Return whether the names are those of a cache's layers, and the annotation takes a cache."""
    layers = {each.name for each in cache_tensors(root, _CACHE, len(tree))}
    kinds = (typing.get_origin(kind) or kind for kind in _kinds(annotation))
    return layers == set(leaves(tree)) and any(
        base.__name__ == "Cache" for kind in kinds for base in kind.__mro__
    )


def _cache(tree: Mapping[str, Tree], kind: str) -> Make:
    try:
        from transformers import cache_utils
    except ImportError as error:
        raise codes.OG128.error(
            f"a cache needs the package transformers, which cannot be imported: {first_line(error)}"
        ) from error
    # The names are the manifest's, and have been made from the number of layers.
    layers: list[Any] = list(tree.values())
    if kind == _CACHE:
        return lambda values: _dynamic(cache_utils, layers, values)
    halves = [[layer[half] for layer in layers] for half in ("decoder", "encoder")]

    def both(values: Mapping[str, Any]) -> Any:
        own, cross = (_dynamic(cache_utils, half, values) for half in halves)
        cache = cache_utils.EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(len(layers)), True)
        return cache

    return both


def _dynamic(module: Any, layers: Sequence[Mapping[str, str]], values: Mapping[str, Any]) -> Any:
    cache = module.DynamicCache()
    for index, names in enumerate(layers):
        key, value = values[names["key"]], values[names["value"]]
        cache.update(key, value, index)
        # Updating joins them to what was there, nothing, which no graph need repeat.
        if hasattr(cache, "layers"):
            cache.layers[index].keys, cache.layers[index].values = key, value
    return cache
