"""Which manifest is meant where none is named."""

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
        if (each / ".git").exists():
            break
    raise UserError(
        f"no {NAMES[0]} here or in a folder above, up to the repository's own; name one with "
        f"--manifest, or write one with: onnx-gate init TARGET ({page('init.md')})"
    )
