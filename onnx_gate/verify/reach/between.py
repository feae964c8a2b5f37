"""Rows between two of which something else is chosen, nearer and nearer to where the choice changes.

A score that is off by a thousandth moves the choice of no row that is drawn, and of forty scores each has
borders of its own. Around one row there are those of a few. So rows of every choice are paired, and the
line between two is halved again and again; the nearest of all show nothing, as rounding decides there, so
what is met on the way is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.draw import Float64
from onnx_gate.verify.reach.gauge import read
from onnx_gate.verify.reach.passes import CASES
from onnx_gate.verify.reach.stack import Stack

# What is left of a line after so many halvings is kept: a 2**8th of it to a 2**17th.
_KEPT = (8, 11, 14, 17)
# And where each row is a pass: nearer ones show more, as long as rounding does not decide them.
_KEPT_OF_PASSES = (14,)
# So many rows are kept of a line.
OF_LINE = 2 * len(_KEPT)
# And so many passes are halved.
LINES = CASES // (2 * len(_KEPT_OF_PASSES))

_Places = npt.NDArray[np.int64]


def between(
    eager: Eager,
    rows: Mapping[str, Array],
    names: Collection[str],
    stack: Stack,
    pays: Callable[[], bool],
) -> dict[str, Array] | None:
    """Return rows on both sides of where choices change, as many lines as there are ``rows``, or ``LINES``.

    The inputs of ``names`` are moved, those of floats; others are as they are at a line's beginning.
    ``pays`` is asked before each batch. ``None`` where nothing is chosen, or always the same.
    """
    chosen = _choices(eager, rows, stack) if pays() else None
    if chosen is None:
        return None
    count, kept_after = (LINES, _KEPT_OF_PASSES) if stack.passes else (len(chosen), _KEPT)
    lines = _lines(chosen, count)
    if lines is None:
        return None
    first, last, column = lines
    low, high = stack.at(rows, first), {**stack.at(rows, first)}
    high |= {name: stack.at(rows, last)[name] for name in names}
    one, other = (
        _at(_choices(eager, each, stack), column) if pays() else None for each in (low, high)
    )
    if one is None or other is None:
        return None
    kept, apart = [], one != other
    for halving in range(1, kept_after[-1] + 1):
        middle = {**low, **{name: _halfway(low[name], high[name]) for name in names}}
        found = _at(_choices(eager, middle, stack), column) if pays() else None
        if found is None:
            break
        same = found == one
        low = _chosen(same, middle, low, names)
        high = _chosen(~same, middle, high, names)
        if halving in kept_after:
            kept += [stack.at(each, np.flatnonzero(apart)) for each in (low, high)]
    return stack.joined(kept) if kept and apart.any() else None


def _choices(eager: Eager, rows: Mapping[str, Array], stack: Stack) -> Float64 | None:
    """Return what is chosen in each row, at each place that is looked at."""
    found = read(eager, rows, stack, every=True)
    if found is None or found.limits.all():
        return None
    chosen: Float64 = found.sides[:, ~found.limits]
    return chosen


def _at(chosen: Float64 | None, column: _Places) -> Float64 | None:
    if chosen is None or chosen.shape[1] <= column.max():
        return None
    found: Float64 = chosen[np.arange(len(column)), column]
    return found


def _lines(chosen: Float64, count: int) -> tuple[_Places, _Places, _Places] | None:
    """Return a beginning and an end for each line, and the place at which these differ.

    Places come in turn, at each of them what is chosen there, and to each of it what comes next to it,
    one further in every round.
    """
    groups = [[np.flatnonzero(each == v) for v in np.unique(each)] for each in chosen.T]
    several = [(column, rows) for column, rows in enumerate(groups) if len(rows) > 1]
    if not several:
        return None
    lines = []
    for line in range(count):
        turn, place = divmod(line, len(several))
        column, rows = several[place]
        step, own = divmod(turn, len(rows))
        other = (own + 1 + step % (len(rows) - 1)) % len(rows)
        lines.append(
            (rows[own][step % len(rows[own])], rows[other][step % len(rows[other])], column)
        )
    first, last, columns = np.array(lines, np.int64).T
    return first, last, columns


def _halfway(low: Array, high: Array) -> Array:
    middle: Array = (low.astype(np.float64) / 2 + high.astype(np.float64) / 2).astype(low.dtype)
    return middle


def _chosen(
    where: npt.NDArray[np.bool_],
    one: Mapping[str, Array],
    other: Mapping[str, Array],
    names: Collection[str],
) -> dict[str, Array]:
    """Return one's rows where they are wanted, and the other's elsewhere."""
    made = dict(other)
    for name in names:
        wanted = where.reshape(-1, *[1] * (one[name].ndim - 1))
        made[name] = np.where(wanted, one[name], other[name])
    return made
