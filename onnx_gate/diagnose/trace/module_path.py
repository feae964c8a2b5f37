"""Where a node comes from: the path of its module and the user's line."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import sysconfig
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import onnx

import onnx_gate
from onnx_gate.report.model import Source

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_CODE_LENGTH = 200
_PREFIX = "pkg.torch.onnx."
# Code that is nobody's own, wherever the workspace is.
_FOREIGN = tuple(
    str(Path(str(place)).resolve())
    for place in (
        Path(onnx_gate.__file__).parent,
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    )
)


@lru_cache(maxsize=4096)
def _inside(file: str, workspace: str) -> str | None:
    """Return a file's path relative to the workspace; ``None`` for a file that is not its own."""
    if file.startswith("<"):
        return None
    try:
        path = Path(file).resolve()
        relative = path.relative_to(workspace)
    except (OSError, ValueError):
        return None
    foreign = any(str(path).startswith(f"{place}/") for place in _FOREIGN)
    if foreign or "site-packages" in relative.parts or not path.is_file():
        return None
    return relative.as_posix()


def source_at(file: str, line: int, workspace: Path) -> Source | None:
    """Return a line of the workspace, ``None`` where the file is not in it."""
    relative = _inside(file, str(workspace.resolve()))
    if relative is None:
        return None
    code = linecache.getline(str(Path(file).resolve()), line).strip()
    return Source(file=relative, line=line, code=code[:_CODE_LENGTH])


def source_of_trace(trace: str, workspace: Path) -> Source | None:
    """Return the last line of a formatted stack (outermost frame first) inside the workspace."""
    for match in reversed(list(_FRAME.finditer(trace))):
        found = source_at(match["file"], int(match["line"]), workspace)
        if found is not None:
            return found
    return None


def source_of_frame(frame: FrameType | None, workspace: Path) -> Source | None:
    """Return the innermost line of a running stack inside the workspace."""
    root = str(workspace.resolve())
    while frame is not None:
        if _inside(frame.f_code.co_filename, root) is not None:
            return source_at(frame.f_code.co_filename, frame.f_lineno, workspace)
        frame = frame.f_back
    return None


def caller(depth: int = 1) -> FrameType:
    """Return the frame that called."""
    return sys._getframe(depth + 1)


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


def source_of_props(node: onnx.NodeProto, workspace: Path) -> Source | None:
    """Return the user's line that the dynamo exporter wrote into a node's metadata."""
    trace = props_of(node).get(f"{_PREFIX}stack_trace")
    return None if trace is None else source_of_trace(trace, workspace)


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
