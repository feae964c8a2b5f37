"""Sizes at which what a module computes of sizes alone comes to limits that no tested one brings it to.

A clamp of a logarithm of positions, or a power of them that overflows, no input's value moves: a longer one
does. So the module runs at sizes of which each is twice the one before and one more, and of every such
value it is told how far it is from its limit. What comes no nearer, or by how much it has come nearer would
be there only beyond what can be paid for, is no reason to go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.verify.export.exported import LARGEST_SIZE
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label, tried_sizes
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.purse import Purse
from onnx_gate.verify.reach.rules import Rule
from onnx_gate.verify.reach.sites import DecisionSite, Seen
from onnx_gate.verify.reach.sizes import free_dimensions, long_dimensions, sizes_along
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import FollowingMode, is_view, tensors_of

# How far each side of a decision is away, in the unit of what is decided.
Distances = dict[tuple[DecisionSite, str], float]

# What takes the size of a tensor and none of its values.
_LIKE = frozenset(
    (
        *("ones_like", "zeros_like", "full_like", "empty_like"),
        *("new_ones", "new_zeros", "new_full", "new_empty", "new_empty_strided"),
    )
)
# Stands for the ends of a floating-point type, beside the rules of an operator.
_ENDS = 2000


@dataclass(frozen=True)
class Growth:
    """Looks for such sizes, one dimension at a time, for what a purse has."""

    spec: ModelSpec
    watcher: Watcher
    inputs: DrawnInputs
    purse: Purse

    def sizes(self) -> Iterator[tuple[str, Sizes]]:
        """Yield sizes beyond the tested ones that bring something to a limit, each under a name."""
        free = free_dimensions(self.spec, self.purse.base.sizes)
        for dim in long_dimensions(self.spec, free):
            yield from self._along(dim, free)

    def _along(self, dim: str, free: Sequence[str]) -> Iterator[tuple[str, Sizes]]:
        base = self.purse.base.sizes
        tested = max((s[dim] for s in tried_sizes(self.spec) if dim in s), default=1)
        # What each side that may still be reached was away, size by size.
        way: dict[tuple[DecisionSite, str], list[float]] | None = None
        size = max(2, base[dim])
        while size <= LARGEST_SIZE:
            row = sizes_along(self.spec, free, dim, size)
            last = self._distances({**base, **row})
            if last is None:
                return
            if way is None:
                way = {key: [] for key in last}
            if size > tested and any(last.get(key, math.inf) <= 0 for key in way):
                yield sizes_label(row), {**base, **row}
            # What is beyond its limit has been tested there.
            way = {key: [*been, last[key]] for key, been in way.items() if last.get(key, 0.0) > 0}
            times = math.log2(max(1.0, self._largest(base, row, dim) / size))
            if not any(_arrives(been, times) for been in way.values()):
                return
            size = 2 * size + 1

    def _largest(self, base: Sizes, row: Sizes, dim: str) -> int:
        """Return the largest size that can be paid for."""
        size = 1
        while 2 * size <= LARGEST_SIZE:
            if not self.purse.affords({**base, **row, dim: 2 * size}, longer=True):
                break
            size *= 2
        return size

    def _distances(self, sizes: Sizes) -> Distances | None:
        """Return how far from their limits values are that follow from sizes, where it can be paid for."""
        ratio = self.purse.ratio(sizes, longer=True)
        if not self.purse.affords(sizes, longer=True) or not self.purse.takes(1.0, ratio):
            return None
        arrays = self.inputs.draw({}, sizes, ("grown",), None)
        return distances(self.watcher, arrays)


def distances(watcher: Watcher, arrays: Mapping[str, Array]) -> Distances | None:
    """Return how far values that follow from sizes alone are from sides that nothing has shown."""
    tensors = {name: to_tensor(array) for name, array in arrays.items()}
    watch = _OfSizes(watcher)
    watch.follow(tensors)
    try:
        watcher.eager.run_prepared(tensors, mode=watch)
    except Refusal:
        return None
    return watch.away


def _arrives(been: list[float], times: float) -> bool:
    """Return whether what was at distances, each at twice a size, is at 0 in so many ``times`` more."""
    if len(been) < 3:
        return len(been) < 2 or been[1] < been[0]
    first, step, left = been[-3] - been[-2], been[-2] - been[-1], been[-1]
    growth = step / first if first > 0 else 2.0
    for _ in range(math.floor(times) if step > 0 else 0):
        step *= growth
        left -= step
    return left <= 0


class _OfSizes(Watch, FollowingMode):
    """Knows how far what depends on no value that it follows is ``away`` from limits."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.away: Distances = {}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and look at what it makes of sizes alone."""
        given = tensors_of((args, kwargs))
        result = super().run(name, func, args, kwargs)
        made = tensors_of(result)
        if name not in _LIKE and self.follows(given):
            self.follow(made)
            return result
        for each in made:
            if each.is_floating_point() and each.numel() > 1 and not is_view(func):
                self._exponents(self._site(name, Rule(), None, _ENDS), each.detach())
        return result

    def _exponents(self, site: DecisionSite, made: torch.Tensor) -> None:
        """Take note how many times numbers can be doubled, or halved, until their type ends."""
        ends = torch.finfo(made.dtype)
        sizes = made.abs()
        least, largest = sizes.masked_fill(sizes == 0, torch.inf).amin(), sizes.amax()
        if not largest:
            return
        low, high = math.log2(float(least)), math.log2(float(largest))
        self._take(site, "above", math.log2(ends.max) - high)
        self._take(site, "below", low - math.log2(ends.smallest_normal))

    def _add(
        self, site: DecisionSite, seen: Seen, operand: torch.Tensor | None = None, limit: Any = None
    ) -> None:
        if site.kind not in ("limit", "equality") or operand is None:
            return
        if self.follows(tensors_of((operand, limit))):
            return
        known = self._shown.seen.get(site)
        for side in site.sides if known is None else known.left(site):
            if side == "equal":
                self._take(site, side, max(seen.low, -seen.high))
            elif side in ("below", "above"):
                self._take(site, side, seen.low if side == "below" else -seen.high)

    def _take(self, site: DecisionSite, side: str, away: float) -> None:
        if not math.isnan(away):
            self.away[site, side] = min(away, self.away.get((site, side), math.inf))
