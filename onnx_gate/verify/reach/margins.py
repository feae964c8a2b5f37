"""How far truths and choices are from being others: what gradients can lead to.

Search-based testing calls it the distance of a branch (Korel, IEEE TSE 16, 1990): a comparison is as true
as its sides are apart, "and" as its least true operand, "or" as its truest, "not" as the opposite is; one
of several candidates is chosen by as much as it is ahead of the others. So a margin is above 0 where its
truth holds. An element of it grows with one element of each tensor that it pulls on, at a place that
moves with it when truths are rearranged. Kept in passes with gradients alone, of what has any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.verify.reach.leaves import InputLeaves

Rearrangement = Callable[[torch.Tensor], torch.Tensor]

# A candidate that is ahead by this share of how far others are behind is chosen whatever rounds.
_CLEARLY = 1e-4
# So many candidates of one choice are climbed to, and written out as ones among zeros.
MOST_CANDIDATES = 64
_ABOVE, _BELOW = frozenset(("gt", "ge")), frozenset(("lt", "le"))
ORDERINGS = _ABOVE | _BELOW
COMPARISONS = ORDERINGS | {"eq", "ne"}
_AND, _OR = frozenset(("logical_and", "bitwise_and")), frozenset(("logical_or", "bitwise_or"))
_NOT = frozenset(("logical_not", "bitwise_not"))
_LARGEST = frozenset(("argmax", "max", "topk"))
_SMALLEST = frozenset(("argmin", "min"))
# Which of two truths hold on a side of what they make together.
TRUTHS = {"both": (1, 1), "first": (1, -1), "second": (-1, 1), "neither": (-1, -1)}
# What leaves the order of its elements as it is, and squeezes those that are far apart to next to nothing.
_SQUEEZES = frozenset(("sigmoid", "tanh", "exp", "_softmax", "_log_softmax"))
# What moves truths about, beside views.
_MOVES = frozenset(("clone", "contiguous", "index_select", "flip", "roll", "gather"))


@dataclass(frozen=True)
class Pull:
    """A tensor that a margin grows with, by the edge at which its gradient begins.

    Of an integer input, which has none, the edge is its name. Of each element of the margin: the flat
    place of the element that it grows with, and how fast.
    """

    edge: Any
    places: torch.Tensor
    factors: torch.Tensor


@dataclass(frozen=True)
class Margin:
    """The distance of each element of a decision from its limit, and what it pulls on.

    ``exact``: where the limit is all that there is to reach, as of two that are to be equal. ``parts``:
    of how many truths it is made, of which each pulls by turns.
    """

    distance: torch.Tensor
    pulls: tuple[Pull, ...]
    exact: torch.Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.bool))
    parts: int = 1

    def times(self, factors: torch.Tensor | float) -> Margin:
        """Return the margin with each element multiplied."""
        pulls = (Pull(p.edge, p.places, p.factors * factors) for p in self.pulls)
        return replace(self, distance=self.distance * factors, pulls=tuple(pulls))

    def moved(self, move: Rearrangement) -> Margin:
        """Return the margin with its elements rearranged."""
        pulls = (Pull(p.edge, move(p.places), move(p.factors)) for p in self.pulls)
        exact = move(self.exact.broadcast_to(self.distance.shape))
        return Margin(move(self.distance), tuple(pulls), exact, self.parts)

    @property
    def shortfall(self) -> Margin:
        """Return how far each element is from being clearly above 0, as what is negative."""
        clearly = _CLEARLY * self.distance.abs().amax().clamp(min=_CLEARLY)
        return Margin((self.distance - clearly).clamp(max=0), self.pulls)

    def where(self, mask: torch.Tensor) -> tuple[Pull, ...]:
        """Return what it pulls on where a mask holds, broadcast to the mask's shape."""
        shape = mask.shape
        return tuple(
            Pull(p.edge, p.places.broadcast_to(shape), p.factors.broadcast_to(shape) * mask)
            for p in self.pulls
        )


def apart(operand: torch.Tensor, limit: Any, leaves: InputLeaves | None = None) -> Margin:
    """Return how far each element is above its limit, a number or a tensor.

    ``leaves`` are the inputs of the pass: an integer one is what its own elements grow with.
    """
    distance = distance_from(operand, limit).detach().clone()
    pulls: list[Pull] = []
    for each, sign in ((operand, 1.0), (limit, -1.0)):
        edge, places = _edge(each, leaves)
        if edge is not None:
            factors = torch.full((), sign, dtype=distance.dtype).broadcast_to(distance.shape)
            pulls.append(Pull(edge, places.broadcast_to(distance.shape), factors))
    if len(pulls) > 1 and all(isinstance(pull.edge, str) for pull in pulls):
        # Of two whole numbers one moves, by turns: half of an odd distance is none.
        turn = (torch.arange(distance.numel()) % 2).view(distance.shape)
        pulls = [replace(p, factors=p.factors * (turn == n)) for n, p in enumerate(pulls)]
    return Margin(distance, tuple(pulls))


def _edge(value: Any, leaves: InputLeaves | None) -> tuple[Any, torch.Tensor]:
    """Return where the gradient of a value begins, if it has one, and its elements' places there."""
    none = torch.empty(0, dtype=torch.int64)
    if not isinstance(value, torch.Tensor):
        return None, none
    if not value.is_floating_point() and leaves is not None:
        return leaves.whole(value) or (None, none)
    if not value.requires_grad:
        return None, none
    with suppress(AttributeError):  # a parameter's, of which torch has none to give here
        edge = torch.autograd.graph.get_gradient_edge(value)
        return edge, torch.arange(value.numel()).view(value.shape)
    return None, none


def distance_from(operand: torch.Tensor, limit: Any) -> torch.Tensor:
    """Return how far each element is above its limit, in a type that can hold it."""
    with torch.no_grad():
        wide = operand if operand.is_floating_point() else operand.to(torch.float64)
        if isinstance(limit, torch.Tensor):
            return wide - (limit if limit.is_floating_point() else limit.to(wide.dtype))
        return wide if limit == 0 else wide - limit


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

    @cached_property
    def _last(self) -> Any:
        return self.margin.distance.topk(min(self.count + 1, len(self)), self.axis)

    def moved(self, move: Rearrangement) -> Choices:
        """Return the choices with their elements rearranged."""
        return replace(self, moves=(*self.moves, move))


def candidates(operand: torch.Tensor, axis: int, sign: float, count: int = 1) -> Choices:
    """Return the candidates along an axis; ``sign`` is -1 where the smallest are chosen."""
    return Choices(apart(operand, 0.0).times(sign), axis % operand.ndim, count)


def _least(one: Margin, other: Margin) -> Margin:
    first = one.distance <= other.distance
    distance = torch.minimum(one.distance, other.distance)
    exact = torch.where(first, one.exact, other.exact)
    pulls = (*one.where(first), *other.where(~first))
    return Margin(distance, pulls, exact, one.parts + other.parts)


def _least_along(truth: Margin, axes: int | list[int] | None, like: torch.Tensor) -> Margin:
    """Return the least margin along axes (``None``: all), of which every element has a part."""
    ends = tuple(range(truth.distance.ndim)) if axes is None else axes
    ends = (ends,) if isinstance(ends, int) else tuple(ends)

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.movedim(ends, tuple(range(-len(ends), 0))).flatten(-len(ends))

    last = rows(truth.distance).argmin(-1, keepdim=True)
    least = truth.moved(lambda t: rows(t).gather(-1, last).reshape(like.shape))
    return replace(least, parts=truth.parts * rows(truth.distance).shape[-1])


class Margins:
    """The margins of the truths and of the choices that one pass has made."""

    def __init__(self, leaves: InputLeaves | None = None) -> None:
        self._leaves = leaves
        self._known: MutableMapping[torch.Tensor, Margin | Choices] = WeakTensorKeyDictionary()
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
        elif name in ("all", "any"):
            truth, sign = self.truth(own), 1.0 if name == "all" else -1.0
            if truth is not None and own.numel() and own.ndim:
                least = _least_along(truth.times(sign), given.get("dim"), result)
                self._note(result, least.times(sign))
        elif own in self._known and result.dtype == own.dtype and self._rearranges(name, func):
            names = [a.name for a in func._schema.arguments if a.name != "self"]
            rest = {n: given[n] for n in names if n in given}

            def move(tensor: torch.Tensor) -> torch.Tensor:
                moved: torch.Tensor = func(tensor, **rest)
                return moved

            self._note(result, self._known[own].moved(move))

    def _note(self, made: Any, found: Margin | Choices | None) -> None:
        margin = found.margin if isinstance(found, Choices) else found
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
        choices = self.choices(own)
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
        return _least(self._or_fixed(own).times(first), self._or_fixed(other).times(second))

    def _or_fixed(self, truth: torch.Tensor) -> Margin:
        """Return a truth's margin; of one that nothing is known of it is out of reach."""
        fixed = torch.full((), 2.0**100, dtype=torch.float64)
        return self.truth(truth) or Margin(torch.where(truth, fixed, -fixed), ())

    def _rearranges(self, name: str, func: Any) -> bool:
        returns = func._schema.returns
        alias = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        return alias or name in _MOVES
