"""Sizes that leave remainders, of small divisors and of strides, that no tested size leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from onnx_gate.graph.limits import FEW_APART

# What is cut into parts is so by these: all remainders of them are gone to.
FEW = range(2, FEW_APART + 1)
# And networks halve what they are given up to five times. Of larger divisors those remainders are gone
# to at which a part is full, begins or is half: what is padded or rounded tells these from others.
DIVISORS = (*FEW, 16, 32)
# No more sizes than that for each dimension, those that leave most first: beside the default sizes so many
# leave all remainders of these divisors, and what is named has what they leave.
MOST = 12


def leaving(tested: Collection[int], least: int, divisors: Iterable[int]) -> Iterator[int]:
    """Yield as few sizes as possible that leave what no tested one does, none smaller than the ``least``.

    Divisors that are named count as far as the largest tested size has two of each.
    """
    of = {d for d in divisors if d in DIVISORS or 1 < d <= max(tested) // 2}
    wanted = {(d, r) for d in of for r in _remainders(d)}
    wanted -= {(d, size % d) for size in tested if size >= least for d in of}
    # Of twice the largest divisor there is some choice for the others.
    among = range(least, least + 2 * max(of, default=0))
    for _ in range(MOST):
        if not wanted:
            return
        size = max(among, key=lambda s: sum((d, s % d) in wanted for d in of))
        wanted -= {(d, size % d) for d in of}
        yield size


def _remainders(divisor: int) -> Collection[int]:
    half = divisor // 2
    few = {0, 1, half - 1, half, half + 1, divisor - 1}
    return range(divisor) if divisor in FEW else few
