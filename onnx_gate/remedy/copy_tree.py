"""A copy of the user's files in which some are others: the remedy is tried there, and nowhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from onnx_gate.findings import codes

# More than this is no folder of a model's sources, and copying it takes longer than the trial.
_MOST_FILES = 20_000
# What is copied; the rest are links, which a manifest may not name, as they lead out of its folder.
_MOST_BYTES = 1 << 30


def copy_tree(source: Path, target: Path, replaced: Mapping[str, str | Path]) -> None:
    """Make ``target`` like ``source``, but for the files ``replaced``: by texts, or by other files.

    Paths are relative, with slashes. What is hidden is a link, and what Python has compiled is left
    behind. Raises ``GateError`` (OG505) where there are too many files, and ``OSError``.
    """
    files = copied = 0
    for top, folders, names in os.walk(source):
        here = Path(top)
        at = here.relative_to(source)
        (target / at).mkdir(parents=True)
        for name in [n for n in folders if n.startswith(".") or (here / n).is_symlink()]:
            (target / at / name).symlink_to((here / name).absolute())
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name != "__pycache__"
            and not (here / name).is_symlink()
            and here / name != target.parent
        ]
        files += len(names)
        if files > _MOST_FILES:
            raise codes.OG505.error(f"{source} has more than {_MOST_FILES} files to copy")
        for path in (here / name for name in names):
            size = path.lstat().st_size
            if path.is_file() and not path.is_symlink() and copied + size <= _MOST_BYTES:
                shutil.copyfile(path, target / at / path.name)
                copied += size
            else:
                (target / at / path.name).symlink_to(path.absolute())
    for name, content in replaced.items():
        new = target / name
        new.unlink(missing_ok=True)  # were it a link, the original would be written
        if isinstance(content, str):
            new.write_text(content, encoding="utf-8", newline="")
        else:
            shutil.copyfile(content, new)
