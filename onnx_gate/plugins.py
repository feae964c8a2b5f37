"""What packages register for the gate: runtimes, suites, formats, each in a group of entry points."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoints, entry_points


def plugins(group: str) -> EntryPoints:
    """Return the entry points of a group, of the packages that are on ``sys.path`` now."""
    return _plugins(group, tuple(sys.path))


# Looking reads a file of every package that is installed, longer than a small session takes to open.
@cache
def _plugins(group: str, path: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)
