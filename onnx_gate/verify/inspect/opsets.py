"""Since when ONNX has an operator, and what changed since another opset."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import onnx


@functools.cache
def _versions() -> Mapping[str, tuple[int, ...]]:
    """Return the opsets at which each operator of ONNX's own domain appeared or changed."""
    since: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            since.setdefault(schema.name, []).append(schema.since_version)
    return {name: tuple(sorted(versions)) for name, versions in since.items()}


def first_opset(op_type: str) -> int | None:
    """Return the opset that introduced an operator, ``None`` where ONNX has no such operator."""
    versions = _versions().get(op_type)
    return versions[0] if versions else None


def introduced_after(op_types: Iterable[str], opset: int) -> dict[str, int]:
    """Return the operators that ``opset`` does not have yet, each with the one that has it."""
    firsts = {name: first_opset(name) for name in sorted(set(op_types))}
    return {name: first for name, first in firsts.items() if first is not None and first > opset}


def changed_between(op_type: str, low: int, high: int) -> tuple[int, ...]:
    """Return the opsets above ``low`` and up to ``high`` at which an operator changed."""
    return tuple(v for v in _versions().get(op_type, ()) if low < v <= high)
