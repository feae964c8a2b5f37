"""The files of a reproduction, which the cache keeps with a verdict: read, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx_gate.files import remove_tree, walk


def put_repro(files: Mapping[str, bytes], target: Path) -> None:
    """Write the files of a reproduction below ``target``, in place of what is there.

    Raises ``OSError``.
    """
    remove_tree(target)
    for name, data in files.items():
        path = target / name
        if not path.resolve().is_relative_to(target.resolve()):
            raise OSError(f"{name} leads out of its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def files_of(folder: Path | None) -> dict[str, bytes]:
    """Return what the plain files below a folder hold, by their paths in it."""
    if folder is None:
        return {}
    return {
        entry.path.as_posix(): (folder / entry.path).read_bytes()
        for entry in walk(folder)
        if entry.is_file
    }
