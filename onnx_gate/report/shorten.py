"""How a rendering is shortened, step by step, from everything down to the verdict alone."""

from __future__ import annotations

from dataclasses import dataclass

_ALL = 10**9
_LISTED = 20
_FEW = 5
_SKIPPED = 4
_STEPS = 5


@dataclass(frozen=True)
class Detail:
    """One step of the ladder.

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


def last(failing: int) -> int:
    """Return the number of the lowest rung for a report with so many failing models."""
    return _STEPS + max(failing - 1, 0) + _shortened(failing)


def rung(detail: int, failing: int) -> Detail:
    """Return a rung: everything, failing models only, fewer explained, fewer named, the verdict."""
    if detail <= 0:
        return Detail(failing, failing, passing=True)
    if detail == 1:
        return Detail(failing, failing)
    step = detail - 2
    if step <= max(failing - 1, 0):
        return Detail(failing, failing - step, entries=_LISTED)
    step -= max(failing - 1, 0)
    if step <= _shortened(failing):
        return Detail(_shortened(failing) - step + 1, 1, entries=_LISTED)
    step -= _shortened(failing)
    if step <= 2:
        return Detail(min(failing, 1), 0, entries=_FEW if step == 1 else 1)
    return Detail(0, 0, entries=0, bare=True)


def _shortened(failing: int) -> int:
    """The most rows of a table that leaves some out: saying so takes the room of a few."""
    return max(failing - _SKIPPED, min(failing - 1, 1), 0)
