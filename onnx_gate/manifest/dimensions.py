"""Sizes that are computed from dynamic dimensions: ``past + 1``, ``2 * n``, ``n // 2``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_MAX_LENGTH = 100


def normalised(text: str) -> str | None:
    """Return a computed size as it is shown everywhere, ``None`` where ``text`` is none."""
    tree = _parsed(text)
    return None if tree is None or not _names(tree) else ast.unparse(tree)


def is_computed(dimension: int | str) -> bool:
    """Return whether a size is computed, and neither fixed nor a dynamic dimension itself."""
    return isinstance(dimension, str) and not dimension.isidentifier()


def names_of(dimension: int | str) -> tuple[str, ...]:
    """Return the dynamic dimensions on which a size depends."""
    if isinstance(dimension, int):
        return ()
    tree = _parsed(dimension) if is_computed(dimension) else None
    return (dimension,) if tree is None else _names(tree)


def size_of(dimension: int | str, sizes: Mapping[str, int]) -> int:
    """Return a size where the dynamic dimensions have ``sizes``; never below 0."""
    return max(value_of(dimension, sizes), 0)


def value_of(dimension: int | str, sizes: Mapping[str, int]) -> int:
    """Return what an expression comes to where the dynamic dimensions have ``sizes``."""
    if isinstance(dimension, int):
        return dimension
    tree = _parsed(dimension) if is_computed(dimension) else None
    return sizes[dimension] if tree is None else _value(tree, sizes)


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr | None:
    if len(text) > _MAX_LENGTH:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_allowed(tree) else None


def _is_allowed(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        divides = isinstance(tree.op, ast.FloorDiv)
        if type(tree.op) not in _OPERATIONS or (divides and not _is_positive(tree.right)):
            return False
        return _is_allowed(tree.left) and _is_allowed(tree.right)
    return isinstance(tree, ast.Name) or _is_positive(tree)


def _is_positive(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and type(tree.value) is int and 0 < tree.value < 2**31


def _names(tree: ast.expr) -> tuple[str, ...]:
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(dict.fromkeys(names))


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_value(tree.left, sizes), _value(tree.right, sizes))
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    assert isinstance(tree, ast.Constant)
    value: int = tree.value  # type: ignore[assignment]
    return value
