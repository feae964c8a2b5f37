"""Inputs of one parameter that holds several tensors, by their dotted names: ``past.0.key``.

A name tells where the tensor is below a parameter of ``forward``: by the key of a dictionary or the
field of a class, or by the index in a list or tuple. Of which class each of them is, the module says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Tree = str | Mapping[str, "Tree"]
"""The name of a tensor, or what is below a name, by its keys."""

CACHES = ("dynamic", "encoder_decoder")
"""The caches of transformers that are known by name."""

_ENCODER, _VALUE = "encoder", "value"
_HALVES = ("decoder", _ENCODER)
_PAIR = ("key", _VALUE)


def parts(name: str) -> tuple[str, ...]:
    """Return the parameter and the keys below it; the name alone where it is not a dotted one."""
    keys = tuple(name.split("."))
    dotted = keys[0].isidentifier() and all(keys)
    return keys if dotted else (name,)


def parameters(names: Iterable[str]) -> tuple[str, ...]:
    """Return the parameters that inputs of these names belong to, each once."""
    return tuple(trees(names))


def below(root: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names at or below ``root``, itself a dotted name, in their order."""
    keys = tuple(root.split("."))
    return tuple(n for n in names if n == root or tuple(n.split("."))[: len(keys)] == keys)


def above(name: str) -> tuple[str, ...]:
    """Return the name and what it is below, the nearest first: ``past.0.key``, ``past.0``, ``past``."""
    keys = name.split(".")
    return tuple(".".join(keys[:depth]) for depth in range(len(keys), 0, -1))


def trees(names: Iterable[str]) -> dict[str, Tree]:
    """Return the inputs by their parameters, what is counted in the order of its numbers.

    ``x.1`` without ``x.0`` or another of its kind is the name of one tensor, as exporters make them.
    Raises ``ValueError`` as ``problems`` has it.
    """
    every = list(names)
    for _, problem in problems(every):
        raise ValueError(problem)
    made: dict[str, Tree] = {}
    for name in every:
        keys = _keys(name, every)
        level: dict[str, Tree] = made
        for key in keys[:-1]:
            inner = level.setdefault(key, {})
            assert isinstance(inner, dict)
            level = inner
        level[keys[-1]] = name
    return {name: _ordered(tree) for name, tree in made.items()}


def problems(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that does not go with the others, and a sentence about it."""
    known = {name: _keys(name, names) for name in names}
    above = {keys[:depth] for keys in known.values() for depth in range(1, len(keys))}
    children: dict[tuple[str, ...], dict[str, str]] = {}
    for name, keys in known.items():
        if keys in above:
            yield name, f"{name} is a tensor here, and holds others as well; name those alone"
        for depth in range(1, len(keys)):
            children.setdefault(keys[:depth], {}).setdefault(keys[depth], name)
    for root, held in children.items():
        shown = ".".join(root)
        numbers = sorted(int(key) for key in held if key.isdecimal())
        if numbers and len(numbers) < len(held):
            odd = next(name for key, name in held.items() if not key.isdecimal())
            yield odd, f"{shown} holds numbers and names; it is a list or a dictionary, not both"
        elif numbers and numbers != list(range(len(numbers))):
            gap = next(n for n in range(len(numbers) + 1) if n not in numbers)
            last = held[str(numbers[-1])] if str(numbers[-1]) in held else next(iter(held.values()))
            yield last, f"there is no {shown}.{gap}; a list is counted from 0 without gaps"


def is_sequence(tree: Mapping[str, Tree]) -> bool:
    """Return whether what is below a name is counted."""
    return all(key.isdecimal() for key in tree)


def leaves(tree: Tree) -> Iterator[str]:
    """Yield the names of the tensors."""
    if isinstance(tree, str):
        yield tree
    else:
        for inner in tree.values():
            yield from leaves(inner)


class CacheTensor(NamedTuple):
    """The keys or the values of a layer, by their name: whether they are values, and the encoder's."""

    name: str
    is_value: bool
    of_encoder: bool


def cache_tensors(name: str, kind: str, layers: int) -> tuple[CacheTensor, ...]:
    """Return the tensors of a cache, with the names that optimum gives them."""
    if kind == "dynamic":
        return tuple(
            CacheTensor(f"{name}.{i}.{each}", each == _VALUE, of_encoder=False)
            for i in range(layers)
            for each in _PAIR
        )
    return tuple(
        CacheTensor(f"{name}.{i}.{half}.{each}", each == _VALUE, half == _ENCODER)
        for i in range(layers)
        for half in _HALVES
        for each in _PAIR
    )


def _keys(name: str, names: Sequence[str]) -> tuple[str, ...]:
    keys = parts(name)
    numbered = len(keys) == 2 and keys[1].isdecimal() and keys[1] != "0"
    if numbered and sum(parts(other)[0] == keys[0] for other in names) == 1:
        return (name,)
    return keys


def _ordered(tree: Tree) -> Tree:
    if isinstance(tree, str):
        return tree
    keys = sorted(tree, key=int) if is_sequence(tree) else list(tree)
    return {key: _ordered(tree[key]) for key in keys}


def name_in_file(name: str, inputs: Collection[str]) -> str:
    """Return what an output is called in a graph, where no two values may have one name."""
    return f"{name}_out" if name in inputs else name
