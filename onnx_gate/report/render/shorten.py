"""How much of a report a rendering shows: levels from everything (0) down to the verdict alone.

A comment has room for 65,536 characters, whatever the report holds. Levels are ordered by how much
they leave out, so that the longest one that fits can be searched by halving (``github/fit.py``). What
is left out goes in this order: lists of passing models; explanations, the mildest failure first; rows
of the table, the mildest first; everything but the verdict, the counts and the links.
"""

from __future__ import annotations

from dataclasses import dataclass

_ALL = 10**9
_LISTED = 20
_FEW = 5
# Saying that rows were left out takes the room of a few rows.
_SKIPPED = 4
# Levels that do not depend on how many models fail.
_STEPS = 5


@dataclass(frozen=True)
class Detail:
    """What is shown at one level.

    ``rows`` failing models are in the table and the first ``sections`` of them are explained;
    every list (of changes, problems, notes, warnings) has at most ``entries`` entries. ``passing``
    says whether passing models are listed or counted, ``bare`` that nothing but the verdict, the
    counts and the links is left.
    """

    rows: int
    sections: int
    entries: int = _ALL
    passing: bool = False
    bare: bool = False


def last_level(failing: int) -> int:
    """Return the number of the shortest level for a report with so many failing models."""
    return _STEPS + max(failing - 1, 0) + _most_rows(failing)


def detail_at(level: int, failing: int) -> Detail:
    """Return what a level shows; levels below 0 are 0, those beyond the last are the last."""
    if level <= 0:
        return Detail(failing, failing, passing=True)
    if level == 1:
        return Detail(failing, failing)
    step = level - 2
    if step <= max(failing - 1, 0):
        return Detail(failing, failing - step, entries=_LISTED)
    step -= max(failing - 1, 0)
    if step <= _most_rows(failing):
        return Detail(_most_rows(failing) - step + 1, 1, entries=_LISTED)
    step -= _most_rows(failing)
    if step <= 2:
        return Detail(min(failing, 1), 0, entries=_FEW if step == 1 else 1)
    return Detail(0, 0, entries=0, bare=True)


def _most_rows(failing: int) -> int:
    """Return the most rows of a table that leaves some out."""
    return max(failing - _SKIPPED, min(failing - 1, 1), 0)
