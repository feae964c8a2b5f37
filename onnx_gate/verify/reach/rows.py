"""Which rows of a table an operator reads, and which of several values it chooses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.runtimes import state
from onnx_gate.verify.reach.margin import Margin, least
from onnx_gate.verify.reach.margins import MOST_CANDIDATES, Choices, Margins, candidates
from onnx_gate.verify.reach.rules import Rule

# Of so many candidates there are 120 pairs, and of more, as of all tokens, too many to go to each.
MOST_PAIRED = 16
# Which end of several values these choose.
_SIGNS = {"amax": 1, "max": 1, "amin": -1, "min": -1}


@dataclass(frozen=True)
class _Two:
    """The candidates of two choices that are made one after the other."""

    first: Choices
    second: Choices

    def paired(self, pairs: torch.Tensor) -> Margin:
        """Return by how much both of each pair are chosen, those of the second choice counted first."""
        of = len(self.second)
        return least(self.first.together(pairs // of), self.second.together(pairs % of))


@dataclass(frozen=True)
class Pointed:
    """Which of ``count`` rows are read, or values chosen; and how near each was to being so.

    Where several are chosen the rows are the ``pairs`` of them.
    """

    count: int
    at: torch.Tensor
    choices: Choices | None = None
    pairs: Choices | _Two | None = None

    def towards(self, unread: torch.Tensor, most: int) -> Iterator[Margin]:
        """Yield by how much rows that were not read are chosen: no more than some, or all pairs at once."""
        rows = unread.nonzero().reshape(-1)
        if self.pairs is not None and len(rows):
            yield self.pairs.paired(rows)
        if self.choices is not None:
            yield from (self.choices[row] for row in rows[:most].tolist())


class Tables:
    """The tables of one pass: weights of the module, by ``own`` addresses, and values side by side."""

    def __init__(self, own: Collection[int]) -> None:
        self._own = own
        self._stacked: MutableMapping[torch.Tensor, int] = WeakTensorKeyDictionary()
        # The last choice of one among few: of how many, which, and by how much.
        self._choice: tuple[int, torch.Tensor, Choices | None] | None = None

    def stacked(self, made: torch.Tensor, axis: int) -> None:
        """Take note of values that were put side by side."""
        self._stacked[made] = axis % made.ndim

    def pointed(
        self,
        name: str,
        rule: Rule,
        table: torch.Tensor,
        bound: Mapping[str, Any],
        margins: Margins | None,
    ) -> Pointed | None:
        """Return what a rule about rows says of a call, ``None`` where it is about none."""
        if rule.kind == "pairs":
            return self._paired(table, bound, margins)
        if rule.limits == ("result",):
            return _several(Pointed(table.numel() + 1, bound["result"]))
        if rule.limits == ("dim",):
            axis, sign = self._stacked_along(table, bound.get("dim")), _SIGNS[name]
            if axis is None:
                return None
            choices = None if margins is None else candidates(table, axis, sign)
            return _several(Pointed(table.shape[axis], (sign * table).argmax(axis), choices))
        at, axis = bound.get(str(rule.limits[0])), bound.get("dim", 0)
        if isinstance(at, (list, tuple)):
            given = [i for i, each in enumerate(at) if each is not None]
            if len(given) != 1:
                return None
            axis, at = given[0], at[given[0]]
        if not table.ndim or not isinstance(at, torch.Tensor) or at.dtype == torch.bool:
            return None
        if not self._is_table(name, table, axis, bound):
            return None
        choices = None if margins is None else margins.choices(at)
        return _several(Pointed(table.shape[axis], at, choices))

    def _paired(
        self, scores: torch.Tensor, bound: Mapping[str, Any], margins: Margins | None
    ) -> Pointed | None:
        """Return which two are chosen together: by one choice of several, or by two of one each."""
        axis, made = bound.get("dim"), bound["result"]
        chosen = made if isinstance(made, torch.Tensor) else made[1]
        if not scores.ndim or not isinstance(axis, int) or chosen.is_floating_point():
            return None
        of, most = scores.shape[axis], bound.get("k", 1)
        if not most < of <= MOST_PAIRED:
            return None
        choices = None if margins is None else margins.choices(chosen)
        if most > 1:
            order = chosen.movedim(axis, -1).sort(-1).values
            one, other = (order[..., place] for place in torch.triu_indices(most, most, 1))
            # How many pairs have a first one before this, and how many of its own come before.
            at = one * (2 * of - one - 1) // 2 + other - one - 1
            return Pointed(of * (of - 1) // 2, at, pairs=choices)
        before, self._choice = self._choice, (of, chosen, choices)
        if before is None or before[1].shape != chosen.shape:
            return None
        two = None if before[2] is None or choices is None else _Two(before[2], choices)
        return Pointed(before[0] * of, before[1] * of + chosen, pairs=two)

    def _is_table(
        self, name: str, table: torch.Tensor, axis: int, bound: Mapping[str, Any]
    ) -> bool:
        """Return whether rows are the module's own, or the places of a choice that is written out."""
        if name.rstrip("_") == "scatter":
            few = table.shape[axis] <= MOST_CANDIDATES and table.numel() > 0
            number = isinstance(bound.get("value"), int | float)
            # The weights of what is chosen are put where there was nothing.
            return few and (number or bool((table == table.reshape(-1)[0]).all()))
        return state.address(table) in self._own

    def _stacked_along(self, table: torch.Tensor, axes: Any) -> int | None:
        """Return the axis of an extreme where it is one of values that were put side by side."""
        axis = axes[0] if isinstance(axes, list | tuple) and len(axes) == 1 else axes
        known = self._stacked.get(table)
        if known is None or not isinstance(axis, int):
            return None
        return known if axis % table.ndim == known else None


def _several(found: Pointed) -> Pointed | None:
    return found if found.count > 1 else None
