"""Which worker starts next, and which one is ended where memory runs short: pure functions.

Memory is in bytes throughout. A worker's *own* memory is what it would give back by ending: the
pages that it shares with the fork server are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MIB = 1 << 20

UNKNOWN = 1024 * MIB
"""What a model is taken to use of which nothing is known, files of weights aside."""

WEIGHTS_TIMES = 4
"""How often a worker holds its weights: the module, the exported program, the file, the session."""

HEADROOM = 1.2
"""How much more than last time a model is taken to use."""

RESERVE = 0.08
"""The share of the memory that workers side by side leave alone: they grow between two looks."""

PATIENCE = 8
"""How often a task may be passed over for one that fits, before it is the next one whatever."""


@dataclass(frozen=True)
class QueuedTask:
    """A task that has not started: what it is expected to own, and how often others passed it."""

    expected: int
    passed: int = 0


@dataclass(frozen=True)
class RunningMemory:
    """A worker that runs: what it was expected to own, what it owns, and when it started."""

    expected: int
    used: int
    started: float


def expectation(past: int | None, weights: int, limit: int | None = None) -> int:
    """Return what a worker is expected to use, pages that it shares with the server included.

    ``past`` is what it was seen to use by an earlier run, ``weights`` the size of its files of
    weights, ``limit`` what it may use at most.
    """
    expected = int(HEADROOM * past) if past else UNKNOWN + WEIGHTS_TIMES * weights
    return expected if limit is None else min(expected, limit)


def longest_first(seconds: Sequence[float | None]) -> list[int]:
    """Return the indices of tasks in the order in which to start them.

    What is unknown takes the median of what is known; equal ones keep their order.
    """
    known = [each for each in seconds if each is not None]
    usual = median(known) if known else 0.0
    taken = [usual if each is None else each for each in seconds]
    return sorted(range(len(taken)), key=lambda index: -taken[index])


def next_to_start(
    waiting: Sequence[QueuedTask], running: Sequence[RunningMemory], room: int
) -> int | None:
    """Return the index in ``waiting`` of the task to start now, None where none may.

    ``room`` is what can be allocated now beyond what the workers of ``running`` own. The first task
    that fits is next: it needs no more than what is left once every worker has grown to what is
    expected of it. Whoever has been passed over too often is waited for, and alone one always
    starts.
    """
    if not waiting:
        return None
    if not running:
        return 0
    left = room - sum(max(0, each.expected - each.used) for each in running)
    for index, task in enumerate(waiting):
        if task.expected <= left:
            return index
        if task.passed >= PATIENCE:
            return None
    return None


def to_end(running: Sequence[RunningMemory], room: int) -> int | None:
    """Return the index of the worker to end where memory is short (``room`` below 0).

    Room was made for what is expected of each, so one that has outgrown that is at fault: the one
    that has done so most, which keeps the others from being run again for its sake. Where none
    has, the memory has gone elsewhere, and it is the one that started last: least is lost. The
    last worker is never ended.
    """
    if room >= 0 or len(running) < 2:
        return None
    return max(
        range(len(running)),
        key=lambda index: (
            max(0, running[index].used - running[index].expected),
            running[index].started,
        ),
    )
