"""How many truths hold: what sums, means, ``all`` and ``any`` of them are, and is held against numbers.

``k`` of them hold where the margin of the ``k``-th is above 0, the largest first: to that number leads the
gradient of one of them at a time, by turns. A truth that is made a number is a count of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from onnx_gate.verify.reach.margin import Margin, Pull, Rearrangement, least

# What gives each truth another share, and what makes counts of truths and of counts.
TIMES = frozenset(("mul", "div"))
COUNTS = TIMES | {"_to_copy", "sum", "mean", "all", "any", "add"}
# Shares of some thousand truths are this near to what they are, rounded in float32.
_SAME = 1e-4
# Each truth is moved by itself: of no more than candidates of a choice are climbed to.
_MOST = 64


@dataclass(frozen=True)
class Count:
    """How many of the truths along the last axis of a margin hold, each of which adds a ``unit``."""

    margin: Margin
    unit: float = 1.0

    def __len__(self) -> int:
        return int(self.margin.distance.shape[-1])

    def beyond(self, number: float) -> Margin:
        """Return by how much more than a number hold."""
        return self._so_many(math.floor(number / self.unit + _SAME) + 1)

    def reaches(self, number: float) -> Margin:
        """Return by how much at least a number hold."""
        return self._so_many(math.ceil(number / self.unit - _SAME))

    def equals(self, number: float) -> Margin:
        """Return by how much a number hold, and no more."""
        return least(self.reaches(number), self.beyond(number).times(-1.0))

    def compared(self, name: str, number: float) -> Margin:
        """Return by how much a comparison with a number holds."""
        if name in ("gt", "le"):
            return self.beyond(number).times(1.0 if name == "gt" else -1.0)
        if name in ("ge", "lt"):
            return self.reaches(number).times(1.0 if name == "ge" else -1.0)
        return self.equals(number).times(1.0 if name == "eq" else -1.0)

    def _so_many(self, count: int) -> Margin:
        place = min(max(count, 1), len(self)) - 1
        order = self.margin.distance.argsort(-1, descending=True)[..., place : place + 1]
        found = self.margin.moved(lambda t: t.gather(-1, order).squeeze(-1))
        return replace(found, parts=self.margin.parts * len(self))

    def moved(self, move: Rearrangement) -> Count | None:
        """Return the counts with their elements rearranged, ``None`` of too many truths."""
        if len(self) > _MOST:
            return None
        margin = self.margin.moved(lambda t: torch.stack([move(u) for u in t.unbind(-1)], -1))
        return replace(self, margin=margin)

    def times(self, name: str, number: Any) -> Count | None:
        """Return what they are as a product or quotient, ``None`` of what is no number above 0."""
        if isinstance(number, torch.Tensor):
            number = number.item() if number.numel() == 1 else None
        if number is None or not 0 < number < math.inf:
            return None
        return replace(self, unit=self.unit * number if name == "mul" else self.unit / number)

    def along(self, name: str, axes: int | list[int] | None, like: torch.Tensor) -> Count:
        """Return what an operator makes of them along axes (``None``: all)."""
        if name == "_to_copy":
            return self
        last = self.margin.distance.ndim - 1
        some = [axes] if isinstance(axes, int) else axes or range(last)
        ends = [axis % last for axis in some] if last else []

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            moved = tensor.movedim(ends, [*range(-len(ends) - 1, -1)]) if ends else tensor
            return moved.reshape(*like.shape, moved.numel() // max(1, like.numel()))

        found = replace(self, margin=self.margin.moved(rows))
        share = len(self) / len(found) if name == "mean" else 1.0
        return replace(found, unit=self.unit * share)

    def beside(self, other: Count, like: torch.Tensor) -> Count | None:
        """Return both counts as one, ``None`` where a truth of one counts more."""
        if self.unit != other.unit:
            return None
        one, two = (
            c.margin.moved(lambda t: t.broadcast_to(*like.shape, t.shape[-1]))
            for c in (self, other)
        )
        ahead, after = torch.zeros_like(one.distance), torch.zeros_like(two.distance)
        pulls = [_padded(p, (p.places, after), (p.factors, after)) for p in one.pulls]
        pulls += [_padded(p, (ahead, p.places), (ahead, p.factors)) for p in two.pulls]
        distance = torch.cat((one.distance, two.distance), -1)
        exact = torch.cat((one.exact, two.exact), -1)
        return replace(
            self, margin=Margin(distance, tuple(pulls), exact, max(one.parts, two.parts))
        )


def _padded(
    pull: Pull, places: tuple[torch.Tensor, ...], factors: tuple[torch.Tensor, ...]
) -> Pull:
    joined = torch.cat([each.long() for each in places], -1)
    return Pull(pull.edge, joined, torch.cat([each.double() for each in factors], -1))
