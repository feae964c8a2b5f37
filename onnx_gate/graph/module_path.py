"""The module that a node comes from, by what each exporter leaves of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from typing import Any

import onnx

_PREFIX = "pkg.torch.onnx."


def module_of_fx(meta: Mapping[str, Any]) -> str | None:
    """Return the path of the innermost module of an FX node's metadata."""
    stack = meta.get("nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    return path if isinstance(path, str) else None


def module_of_props(node: onnx.NodeProto) -> str | None:
    """Return the module that the dynamo exporter wrote into a node's metadata."""
    scopes = props_of(node).get(f"{_PREFIX}name_scopes")
    if scopes is None:
        return None
    try:
        names = ast.literal_eval(scopes)
    except (ValueError, SyntaxError):
        return None
    if not isinstance(names, list) or len(names) < 2 or not isinstance(names[-2], str):
        return None
    return names[-2]


def props_of(node: onnx.NodeProto) -> dict[str, str]:
    """Return a node's metadata."""
    return {entry.key: entry.value for entry in node.metadata_props}


def module_of_scope(name: str, modules: Collection[str]) -> str | None:
    """Return the module in a name of the TorchScript exporter: ``/blocks/blocks.0/conv/Conv``.

    ``modules`` are the paths of all modules. A module called again has a number at its end.
    """
    if not name.startswith("/"):
        return None
    path = ""
    for part in name.split("/")[1:-1]:
        for text in (part, re.sub(r"_\d+$", "", part)):
            joined = f"{path}.{text}" if path else text
            if text.startswith(f"{path}.") and text in modules:
                path = text
                break
            if joined in modules:
                path = joined
                break
        else:
            return path or None
    return path
