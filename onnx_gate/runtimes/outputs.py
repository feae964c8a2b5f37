"""What a PyTorch model returns, as a flat list of named tensors in the order of ``torch.export``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.findings import codes

SINGLE = "output"


def flatten(value: object) -> list[tuple[str, torch.Tensor]]:
    """Return ``(name, tensor)`` for every tensor in ``value``, in a stable order.

    Names are paths: a dictionary's key, a field, or the position in a tuple, joined with dots
    (``past.0.key``); a single tensor is called ``output``. ``None`` stands for an output that is
    not there, and Python numbers are constants of the graph: both are left out, as exporters do.

    Raises ``GateError`` of kind ``unverified`` where a leaf is no tensor.
    """
    if isinstance(value, torch.Tensor):
        return [(SINGLE, value)]
    return list(_walk("", value))


def unregistered_dataclasses(value: object) -> set[type]:
    """Return the dataclasses in ``value`` that ``torch.export`` does not know how to flatten."""
    found: set[type] = set()
    for leaf in pytree.tree_leaves(value):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            found.add(type(leaf))
            for field in dataclasses.fields(leaf):
                found |= unregistered_dataclasses(getattr(leaf, field.name))
    return found


def _walk(prefix: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    leaves, _ = pytree.tree_flatten_with_path(value)
    for path, leaf in leaves:
        name = ".".join([*([prefix] if prefix else []), *(_key(key) for key in path)])
        if isinstance(leaf, torch.Tensor):
            yield name or SINGLE, leaf
        elif leaf is None or isinstance(leaf, (bool, int, float, str)):
            continue
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                inner = f"{name}.{field.name}" if name else field.name
                yield from _walk(inner, getattr(leaf, field.name))
        else:
            remedy = "return tensors, or tuples, dictionaries and dataclasses of them"
            if type(leaf).__name__.endswith("Cache"):
                remedy = "switch it off (use_cache=False in the model's configuration)"
            raise codes.OG107.error(
                f"the model returns a {type(leaf).__module__}.{type(leaf).__qualname__}"
                f"{f' at {name}' if name else ''}, which neither the gate nor torch.export can take "
                f"apart: {remedy}",
            )


def _key(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
