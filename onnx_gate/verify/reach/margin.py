"""How far the elements of a decision are from its limit, and what these distances grow with.

Search-based testing calls it the distance of a branch (Korel, IEEE TSE 16, 1990): a comparison is as true
as its sides are apart, "and" as its least true operand, "or" as its truest, "not" as the opposite is. So a
margin is above 0 where its truth holds. An element of it grows with one element of each tensor that it
pulls on, at a place that moves with it when truths are rearranged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from onnx_gate.verify.reach.leaves import InputLeaves

Rearrangement = Callable[[torch.Tensor], torch.Tensor]

# A candidate that is ahead by this share of how far others are behind is chosen whatever rounds.
_CLEARLY = 1e-4


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


def least(one: Margin, other: Margin) -> Margin:
    """Return of each element the margin that is least: by how much both truths hold."""
    first = one.distance <= other.distance
    distance = torch.minimum(one.distance, other.distance)
    exact = torch.where(first, one.exact, other.exact)
    return Margin(distance, _either(first, one, other), exact, one.parts + other.parts)


def _either(first: torch.Tensor, one: Margin, other: Margin) -> tuple[Pull, ...]:
    """Return what ``one`` pulls on where it is ``first``, and the other elsewhere.

    An element is of one of them, so that a pull of each on the same tensor is one: a truth that is made of
    itself again and again would have twice as many each time.
    """
    pulls, rest = list(one.where(first)), list(other.where(~first))
    for place, pull in enumerate(pulls):
        alike = next((n for n, each in enumerate(rest) if each.edge == pull.edge), None)
        if alike is not None:
            places = torch.where(first, pull.places, rest[alike].places)
            pulls[place] = Pull(pull.edge, places, pull.factors + rest.pop(alike).factors)
    return (*pulls, *rest)
