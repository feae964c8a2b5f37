"""Which manifest is meant where none is named, and where it is in its repository."""

from __future__ import annotations

import os
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.pages import page

NAMES = ("onnx-gate.yml", "onnx-gate.yaml")
"""What a manifest is called."""


def usual_manifest(folder: Path) -> str:
    """Return what the manifest of ``folder`` is called, or would be where it has none."""
    return next((name for name in NAMES if (folder / name).is_file()), NAMES[0])


def find_manifest(folder: Path) -> Path:
    """Return the manifest in ``folder``, or in the nearest folder above that has one.

    The repository's own folder is the last to be looked into: what lies above it belongs to somebody
    else. Returns a path relative to ``folder``. Raises ``UserError`` where there is none, and where
    a folder has two.
    """
    start = folder.resolve()
    for each in (start, *start.parents):
        present = [name for name in NAMES if (each / name).is_file()]
        if len(present) > 1:
            raise UserError(f"{each} has {' and '.join(present)}; remove one, or use --manifest")
        if present:
            return Path(os.path.relpath(each / present[0], start))
        if _is_root(each):
            break
    raise UserError(
        f"no {NAMES[0]} here or in a folder above, up to the repository's own; name one with "
        f"--manifest, or write one with: onnx-gate init TARGET ({page('init.md')})"
    )


def path_in_repository(file: Path, workspace: Path | None = None) -> str:
    """Return the path of a file from the root of its repository, or its name where it is in none.

    The root is the nearest folder above with a ``.git``. Below ``workspace``, which a runner has
    checked the repository out into, it is the topmost one, since a submodule has one of its own,
    and the workspace itself where there is none. No link is followed: what a link is called is in
    the repository, and what it leads to may be anything.
    """
    path = Path(os.path.abspath(file))
    folders = list(path.parents)
    if workspace in folders:
        below = folders[: folders.index(workspace) + 1]
        root = next(filter(_is_root, reversed(below)), workspace)
    else:
        root = next(filter(_is_root, folders), path.parent)
    return path.relative_to(root).as_posix()


def _is_root(folder: Path) -> bool:
    return os.path.exists(folder / ".git")
