"""Whether the files that a manifest names are there, and inside the workspace."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from onnx_gate.text import did_you_mean, quote


def is_inside(workspace: Path, path: Path) -> bool:
    """Whether a path, its symbolic links followed, lies below the workspace."""
    try:
        return path.resolve().is_relative_to(workspace.resolve())
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, a loop of links
        return False


def complaint(workspace: Path, relative: str) -> str | None:
    """What is wrong with a path that should be a file in the workspace; ``None`` if nothing is."""
    path = workspace / relative
    if not is_inside(workspace, path):
        return f"{quote(relative)} leads out of the manifest's folder; keep the file inside it"
    try:
        if path.is_file():
            return None
        if path.is_dir():
            return f"{quote(relative)} is a folder; name a file"
        siblings = [each.name for each in islice(path.parent.iterdir(), 200)]
    except OSError:
        siblings = []
    hint = did_you_mean(path.name, siblings)
    if not hint.startswith("; did you mean"):
        hint = "; paths are relative to the manifest's folder"
    return f"no such file: {quote(relative)}{hint}"


def reference_complaint(workspace: Path, reference: str) -> str | None:
    """The same for ``file.py:attribute``; a dotted module is found only when it is imported."""
    where = reference.rpartition(":")[0]
    return complaint(workspace, where) if where.endswith(".py") else None
