"""The reports that paths lead to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.report.layout import REPORT


def find_reports(paths: Iterable[Path], output: Path | None = None) -> list[Path]:
    """Return the files among ``paths``, and for each folder the reports in it.

    That is its own ``report.json``, or else those of the folders in it, as each artifact is one
    folder. Further down lies what models have written, who could write a report as well. Sorted
    within a folder, each file once, and without the one that ``output`` has from an earlier merge.
    A folder without any report stays in the list.
    """
    own = os.path.realpath(output / REPORT) if output is not None else None
    files_by_path: dict[str, Path] = {}
    for path in paths:
        files = [path]
        if os.path.isdir(path):
            levels = [path / REPORT], [each / REPORT for each in _folders(path)]
            found = ([e for e in level if _is_report(e, own)] for level in levels)
            files = next(filter(None, found), [path])
        for file in files:
            files_by_path.setdefault(os.path.realpath(file), file)
    return list(files_by_path.values())


def _folders(path: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    return []


def _is_report(path: Path, own: str | None) -> bool:
    return path.is_file() and os.path.realpath(path) != own


def find_report(path: Path) -> Path:
    """Return a file, or the one report below a folder; raises ``UserError`` where there are several."""
    files = find_reports([path])
    if len(files) > 1:
        raise UserError(
            f"{path}: {len(files)} reports below it; name one, or make one of them: onnx-gate merge"
        )
    return files[0]
