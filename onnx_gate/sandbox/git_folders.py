"""Where a workspace has ``.git`` folders, and the paths that cover all the rest of it.

One walk finds both. It neither recurses nor goes on for ever: a repository may hold folders nested as
deep as a path is long, or millions of them. What it does not look into may hold a ``.git``, and is
treated as if it were one: closed, not open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_FOLDERS = 100_000
DEEPEST = 200


@dataclass(frozen=True)
class Survey:
    """``git`` are the ``.git`` entries, ``unknown`` the folders that were not looked into.

    ``rest`` are paths that cover the workspace without any of them, and without symbolic links.
    """

    git: tuple[Path, ...]
    unknown: tuple[Path, ...]
    rest: tuple[str, ...]


def survey(workspace: Path, most: int = MOST_FOLDERS, deepest: int = DEEPEST) -> Survey:
    """Look through a workspace without following links."""
    top = str(workspace)
    git: list[str] = []
    unknown: list[str] = []
    waiting = [(top, 0)]
    seen = 0
    while waiting:
        folder, depth = waiting.pop()
        seen += 1
        try:
            if seen > most or depth > deepest:
                raise OSError
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True)
        except OSError:
            unknown.append(folder)
            continue
        for entry in entries:
            if entry.name == ".git":
                git.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, depth + 1))
    closed = {*git, *unknown}
    rest = () if top in closed else tuple(_rest(top, closed)) if closed else (top,)
    return Survey(tuple(map(Path, git)), tuple(map(Path, unknown)), rest)


def _rest(top: str, closed: set[str]) -> Iterator[str]:
    """Yield what lies beside the ``closed`` paths in the folders above them."""
    above = {parent for path in closed for parent in _parents(path, top)}
    for folder in sorted(above):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.path not in closed and entry.path not in above and not entry.is_symlink():
                yield entry.path


def _parents(path: str, top: str) -> Iterator[str]:
    while path != top:
        path = os.path.dirname(path)
        yield path
