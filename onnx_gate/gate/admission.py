"""Which worker starts next, and which one is ended where memory runs short: pure functions.

Memory is counted in bytes throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

MIB = 1 << 20

UNKNOWN = 1536 * MIB
"""What a model is taken to use of which nothing is known, files of weights aside."""

WEIGHTS_TIMES = 4
"""How often a worker holds its weights: the module, the exported program, the file, the session."""

HEADROOM = 1.2
"""How much more than last time a model is taken to use."""


def expectation(past: int | None, weights: int, limit: int | None = None) -> int:
    """Return what a worker is expected to use, pages that it shares with the server included.

    ``past`` is what it was seen to use by an earlier run, ``weights`` the size of its files of
    weights, ``limit`` what it may use at most.
    """
    expected = int(HEADROOM * past) if past else UNKNOWN + WEIGHTS_TIMES * weights
    return expected if limit is None else min(expected, limit)


def longest_first(seconds: Sequence[float | None]) -> list[int]:
    """Return the places of tasks in the order in which to start them.

    What is unknown takes the median of what is known; equal ones keep their order.
    """
    known = [each for each in seconds if each is not None]
    usual = median(known) if known else 0.0
    return sorted(range(len(seconds)), key=lambda i: -_or(seconds[i], usual))


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
