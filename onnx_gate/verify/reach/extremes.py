"""The rows of tables that have the largest and smallest numbers, or are others in a table like it.

That a table is the module's to the bit says nothing of what is made of its rows. A class of 7 among 99,999,
or the one row far from all others, no draw reads; whoever clips at 6 is told by it. Of an input that may be
every row of a table, or nearly, those rows are read that are an end of a column, of some columns of wide
tables, and the longest and the shortest. And of two tables that are the same but for few rows, as weights
and their running average are, these: where a file has one in the place of the other they alone tell. Any
two of them stand next to each other: what overflows may be their sum.

It reads each table once, and once more for each that it is held against.
"""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.verify.inputs.draw import Stream
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.whole import Whole

_COLUMNS = 8
# Of the longest and of the shortest rows so many.
_LENGTHS = 4
# Of rows in which two tables differ so many; where more do, ordinary draws read one of them.
_OTHERS = 16
# So many tables of one shape are held against each other: a table, its average and those of two towers.
_ALIKE = 4
# Larger tables are as large as all that a pass may keep.
_MOST_NUMBERS = 2**27


def extreme_rows(module: nn.Module, domain: Domain) -> Whole:
    """Return the numbers of such rows, of all tables that an input of a domain may be the rows of."""
    low, high = domain.ends
    found: dict[int, None] = {}
    tables: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    for _, table in state.tensors(module):
        # What cannot be looked at is left out.
        with suppress(Exception):
            rows = len(table) if table.ndim else 0
            if high < rows <= 2 * (high + 1) and low >= 0 and table.numel() <= _MOST_NUMBERS:
                own = table.detach()[low : high + 1]
                found.update(dict.fromkeys(int(row) + low for row in _ends(own)))
                tables.setdefault((own.dtype, *own.shape), []).append(own)
    for alike in tables.values():
        for one, other in itertools.combinations(alike[:_ALIKE], 2):
            with suppress(Exception):
                found.update(dict.fromkeys(row + low for row in _apart(one, other)))
    return np.array(list(found), np.int64)


def lines_of(rows: Whole, width: int) -> Whole:
    """Return lines of so many rows, ``[lines, width]``, in which any two stand next to each other.

    With steps of each length around a circle of a prime number of places, from line to line; in an order
    in which a part of the lines has steps of all lengths.
    """
    if width < 2:
        return rows[:, None]
    count = next(n for n in itertools.count(max(2, len(rows))) if all(n % d for d in range(2, n)))
    each = math.ceil(count / (width - 1))
    line = Stream("lines").words((count - 1) * each).argsort(kind="stable")[:, None]
    places = (line % each * (width - 1) + np.arange(width)) * (1 + line // each)
    lines: Whole = np.resize(rows, count)[places % count]
    return lines


def _apart(one: torch.Tensor, other: torch.Tensor) -> list[int]:
    """Return the rows in which two tables differ, where these are few."""
    rows: list[int] = (one != other).reshape(len(one), -1).any(1).nonzero().reshape(-1).tolist()
    return rows if len(rows) <= _OTHERS else []


def _ends(table: torch.Tensor) -> list[int]:
    values = table.reshape(len(table), -1)
    columns = np.unique(np.linspace(0, values.shape[1] - 1, _COLUMNS).astype(np.int64))
    some = values[:, torch.from_numpy(columns)].float()
    rows = [*some.argmax(0).tolist(), *some.argmin(0).tolist()]
    lengths = torch.linalg.vector_norm(values.float(), dim=1)
    count = min(_LENGTHS, len(lengths))
    for largest in (True, False):
        rows += lengths.topk(count, largest=largest).indices.tolist()
    return [row for row in rows if math.isfinite(float(lengths[row]))]
