"""How far truths and choices of one pass are from being others: what gradients can lead to.

One of several candidates is chosen by as much as it is ahead of the others. Kept in passes with gradients
alone, of what has any.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.verify.reach.counts import COUNTS, TIMES, Count
from onnx_gate.verify.reach.leaves import InputLeaves
from onnx_gate.verify.reach.margin import Margin, Rearrangement, apart, least
from onnx_gate.verify.reach.rules import Kind
from onnx_gate.verify.reference.operator_mode import is_view

# So many candidates of one choice are climbed to, and written out as ones among zeros.
MOST_CANDIDATES = 64
_ABOVE, _BELOW = frozenset(("gt", "ge")), frozenset(("lt", "le"))
ORDERINGS = _ABOVE | _BELOW
COMPARISONS = ORDERINGS | {"eq", "ne"}
_AND, _OR = frozenset(("logical_and", "bitwise_and")), frozenset(("logical_or", "bitwise_or"))
_NOT = frozenset(("logical_not", "bitwise_not"))
_LARGEST = frozenset(("argmax", "max", "topk"))
_SMALLEST = frozenset(("argmin", "min"))
CHOOSES = _LARGEST | _SMALLEST
# Which of two truths hold on a side of what they make together.
TRUTHS = {"both": (1, 1), "first": (1, -1), "second": (-1, 1), "neither": (-1, -1)}
# What leaves the order of its elements as it is, and squeezes those that are far apart to next to nothing.
_SQUEEZES = frozenset(("sigmoid", "tanh", "exp", "_softmax", "_log_softmax"))
# What moves truths about, beside views.
_MOVES = frozenset(("clone", "contiguous", "index_select", "flip", "roll", "gather"))


@dataclass(frozen=True)
class Choices:
    """Of each candidate along an axis by how much it is among the first ``count``, made when asked for.

    ``margin`` is that of all of them. ``moves`` are what was done to the choice since: each candidate
    has the operand's shape without the axis, and then these.
    """

    margin: Margin
    axis: int
    count: int = 1
    moves: tuple[Rearrangement, ...] = ()

    def __len__(self) -> int:
        return int(self.margin.distance.shape[self.axis])

    def __getitem__(self, each: int) -> Margin:
        axis, last, whole = self.axis, self._last, self.margin
        own = whole.moved(lambda t: t.select(axis, each))
        # The last that is chosen beside it, or the first that is not.
        size, count = len(self), self.count
        first = own.distance < last.values.select(axis, -1 if size <= count else count - 1)
        ahead = last.indices.select(axis, min(count, size) - 1)
        behind = last.indices.select(axis, min(count, size - 1))
        rival = torch.where(first, ahead, behind).unsqueeze(axis)
        other = whole.moved(lambda t: t.gather(axis, rival).squeeze(axis))
        pulls = (*own.pulls, *other.times(-1.0).pulls)
        made = Margin(own.distance - other.distance, pulls)
        for move in self.moves:
            made = made.moved(move)
        return made

    def paired(self, pairs: torch.Tensor) -> Margin:
        """Return by how much both of each pair, as ``triu_indices`` numbers them, are among the first."""
        one, other = torch.triu_indices(len(self), len(self), 1)[:, pairs]
        return self.together(one, other)

    def together(self, *chosen: torch.Tensor) -> Margin:
        """Return by how much candidates, of each kind one of equally many, are among the first together.

        They lie along the last axis: each row of a batch may go to another place of it.
        """
        whole = self.margin.moved(lambda t: t.movedim(self.axis, -1))
        most = min(self.count + 1, len(self))
        order = whole.distance.topk(most, -1).indices.unsqueeze(-2)
        beside, weakest = torch.ones(()).bool(), chosen[0]
        for each in chosen:
            beside = beside & (order != each[:, None])
            weaker = whole.distance[..., each] < whole.distance.gather(
                -1, weakest.expand(*whole.distance.shape[:-1], -1)
            )
            weakest = torch.where(weaker, each, weakest)
        # The last that would be chosen beside them has to make room, or the first of all others.
        last = self.count - len(chosen) + 1
        place = (beside & (beside.cumsum(-1) == last)).int().argmax(-1, keepdim=True)
        rival = order.expand(*place.shape[:-1], -1).gather(-1, place).squeeze(-1)
        own = whole.moved(lambda t: t.gather(-1, weakest))
        other = whole.moved(lambda t: t.gather(-1, rival))
        # To be ahead of each other candidate is a truth of its own.
        pulls = (*own.pulls, *other.times(-1.0).pulls)
        return Margin(own.distance - other.distance, pulls, parts=len(self))

    @cached_property
    def _last(self) -> Any:
        return self.margin.distance.topk(min(self.count + 1, len(self)), self.axis)

    def moved(self, move: Rearrangement) -> Choices:
        """Return the choices with their elements rearranged."""
        return replace(self, moves=(*self.moves, move))


def candidates(operand: torch.Tensor, axis: int, sign: float, count: int = 1) -> Choices:
    """Return the candidates along an axis; ``sign`` is -1 where the smallest are chosen."""
    return Choices(apart(operand, 0.0).times(sign), axis % operand.ndim, count)


def before_next(operand: torch.Tensor, axis: int) -> Margin:
    """Return of each element along an axis, but the last, by how much it is above the one after it."""
    whole, count = apart(operand, 0.0), operand.shape[axis] - 1
    own = whole.moved(lambda t: t.narrow(axis, 0, count))
    other = whole.moved(lambda t: t.narrow(axis, 1, count))
    return Margin(own.distance - other.distance, (*own.pulls, *other.times(-1.0).pulls))


class Margins:
    """The margins of the truths and of the choices that one pass has made."""

    def __init__(self, leaves: InputLeaves | None = None) -> None:
        self._leaves = leaves
        self._known: MutableMapping[torch.Tensor, Margin | Choices | Count] = (
            WeakTensorKeyDictionary()
        )
        # Of what is squeezed: what it is made of, and along which axis if along one.
        self._squeezed: MutableMapping[torch.Tensor, tuple[torch.Tensor, int | None]] = (
            WeakTensorKeyDictionary()
        )

    def truth(self, made: Any) -> Margin | None:
        """Return the margin of a truth, where it is known."""
        found = self._known.get(made) if isinstance(made, torch.Tensor) else None
        return found if isinstance(found, Margin) else None

    def choices(self, made: Any) -> Choices | None:
        """Return the candidates of a choice, where they are known."""
        found = self._known.get(made) if isinstance(made, torch.Tensor) else None
        return found if isinstance(found, Choices) else None

    def count(self, made: Any) -> Count | None:
        """Return of which truths a number is the count; a truth is one of itself."""
        found = self._known.get(made) if isinstance(made, torch.Tensor) else None
        if isinstance(found, Margin):
            return Count(found.moved(lambda t: t.unsqueeze(-1)))
        return found if isinstance(found, Count) else None

    def towards(self, made: Any, number: float | None, kind: Kind, side: str) -> Margin | None:
        """Return how far a choice or a count is from a limit, or from being it, where it is one."""
        choices, count = self.choices(made), self._known.get(made)
        if number is None:
            return None
        if choices is not None:
            chosen = kind == "equality" and number in range(len(choices))
            return choices[int(number)].shortfall if chosen else None
        if not isinstance(count, Count):
            return None
        if kind == "equality":
            return count.equals(number)
        return count.reaches(number) if side == "below" else count.beyond(number)

    def learn(self, name: str, func: Any, given: Mapping[str, Any], result: Any) -> None:
        """Take note of what an operator has made of truths, choices and numbers."""
        name, own = name.rstrip("_"), given.get("self")
        if not isinstance(own, torch.Tensor):
            return
        if name in _LARGEST or name in _SMALLEST:
            made = result if isinstance(result, torch.Tensor) else result[-1]
            self._note(made, self._chosen(name, own, given, made))
        elif not isinstance(result, torch.Tensor):
            return
        elif name in _SQUEEZES:
            self._squeezed[result] = own, given.get("dim")
        elif name in COMPARISONS:
            self._note(result, self._compared(name, own, given.get("other")))
        elif name in _NOT:
            truth = self.truth(own)
            self._note(result, None if truth is None else truth.times(-1.0))
        elif (name in _AND or name in _OR) and result.dtype == torch.bool:
            sign = -1.0 if name in _OR else 1.0
            joined = self.joined(own, given.get("other"), sign, sign)
            self._note(result, None if joined is None else joined.times(sign))
        elif name in COUNTS and (count := self.count(own)) is not None:
            self._note(result, self._counted(name, count, given, result))
        elif own in self._known and result.dtype == own.dtype and (is_view(func) or name in _MOVES):
            names = [a.name for a in func._schema.arguments if a.name != "self"]
            rest = {n: given[n] for n in names if n in given}

            def move(tensor: torch.Tensor) -> torch.Tensor:
                moved: torch.Tensor = func(tensor, **rest)
                return moved

            self._note(result, self._known[own].moved(move))

    def _counted(
        self, name: str, count: Count, given: Mapping[str, Any], result: torch.Tensor
    ) -> Margin | Count | None:
        if name in TIMES:
            return count.times(name, given.get("other"))
        if name == "add":
            other = self.count(given.get("other"))
            return None if other is None else count.beside(other, result)
        found = count.along(name, given.get("dim"), result)
        if name == "all":
            return found.reaches(len(found))
        return found.beyond(0) if name == "any" else found

    def _note(self, made: Any, found: Margin | Choices | Count | None) -> None:
        margin = found if isinstance(found, Margin | None) else found.margin
        if isinstance(made, torch.Tensor) and found is not None and margin and margin.pulls:
            self._known[made] = found

    def _chosen(
        self, name: str, own: torch.Tensor, given: Mapping[str, Any], made: torch.Tensor
    ) -> Choices | None:
        axis = given.get("dim")
        if not isinstance(axis, int) or made.dtype != torch.int64 or not own.requires_grad:
            return None
        if not own.ndim or own.shape[axis] < 2:
            return None
        count = given["k"] if name == "topk" else 1
        smallest = name in _SMALLEST or given.get("largest") is False
        before, along = self._squeezed.get(own, (own, None))
        if along is None or (along - axis) % own.ndim == 0:
            own = before
        found = candidates(own, axis, -1.0 if smallest else 1.0, count)
        if made.ndim == own.ndim:  # an axis of the choices is kept
            return found.moved(lambda t: t.unsqueeze(axis).expand(made.shape))
        return found

    def _compared(self, name: str, own: torch.Tensor, other: Any) -> Margin | None:
        if isinstance(other, torch.Tensor) and not other.ndim and not other.requires_grad:
            other = other.item()
        choices, count = self.choices(own), self.count(own)
        if count is not None:
            return None if isinstance(other, torch.Tensor) else count.compared(name, float(other))
        if choices is not None:
            whole = isinstance(other, int) and 0 <= other < len(choices)
            if not whole or name not in ("eq", "ne"):
                return None
            margin = choices[int(other)]
        else:
            margin = apart(own, other, self._leaves)
            if name in ("eq", "ne"):
                margin = margin.times(-margin.distance.sign())
                margin = replace(margin, exact=torch.ones_like(margin.exact))
        return margin.times(-1.0) if name in _BELOW or name == "ne" else margin

    def joined(self, own: Any, other: Any, first: float, second: float) -> Margin | None:
        """Return by how much two truths hold at once, or where a sign is negative, their opposites."""
        if not isinstance(other, torch.Tensor):
            return None
        if self.truth(own) is None and self.truth(other) is None:
            return None
        return least(self._or_fixed(own).times(first), self._or_fixed(other).times(second))

    def _or_fixed(self, truth: torch.Tensor) -> Margin:
        """Return a truth's margin; of one that nothing is known of it is out of reach."""
        fixed = torch.full((), 2.0**100, dtype=torch.float64)
        return self.truth(truth) or Margin(torch.where(truth, fixed, -fixed), ())
