"""Which sides, and columns, are climbed to, from where, and what pays for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.margins import MOST_CANDIDATES
from onnx_gate.verify.reach.purse import MOST_NUMBERS, Purse
from onnx_gate.verify.reach.seek import CLIMBERS, Start, follows, mutate, seek
from onnx_gate.verify.reach.sites import DecisionSite, parts_of
from onnx_gate.verify.reach.solve import solved
from onnx_gate.verify.reach.watcher import Watcher

# A pass with gradients goes there and back, and keeps what it meets.
WITH_GRADIENTS = 3.0
# A pass of rows that climb may cost so many plain ones: where most of it are its calls, it does.
_COST_OF_ROWS = 2.0
_TRIES = 6


@dataclass(frozen=True)
class Found:
    """Inputs that a climb has come to, their sizes and what names their case."""

    parts: tuple[str, ...]
    arrays: Mapping[str, Array]
    sizes: Sizes


@dataclass(frozen=True)
class Climbs:
    """Climbs to what a watcher has not seen, in ``known`` domains, for what a purse has."""

    watcher: Watcher
    inputs: DrawnInputs
    purse: Purse
    known: Mapping[str, Domain]

    def sides(self, base: Case) -> Iterator[Found]:
        """Yield inputs that show sides of decisions which were not seen so far."""
        if not self._may or not self.purse.takes(WITH_GRADIENTS):
            return
        follows(self.watcher, base.arrays, self.known)
        for site, side in self.watcher.open():
            seen = self.watcher.seen.get(site)
            if seen is None or side not in seen.left(site) or not seen.moves:
                continue
            # Of rows each way leads to one that is still unread.
            for _ in range(MOST_CANDIDATES if site.has_rows else 1):
                before = self.watcher.seen[site].read
                found = self._found(site, side, base)
                if found is None:
                    break
                yield found
                last = self.watcher.seen[site]
                if last.read == before or side not in last.left(site):
                    break

    def columns(self, base: Case) -> Iterator[Found]:
        """Yield inputs that show in columns of few the sides that others alone have shown."""
        if not self._may:
            return
        for site, seen in [*self.watcher.seen.items()]:
            for side, columns in seen.columns_left(site) if seen.follows else ():
                parts = (*parts_of(site, side), "columns")
                yield from self._climbed(site, side, base, parts, columns)

    @property
    def _may(self) -> bool:
        return bool(self.known) and self.purse.cost.numbers <= MOST_NUMBERS

    def _found(self, site: DecisionSite, side: str, base: Case) -> Found | None:
        parts = parts_of(site, side)
        if self.watcher.seen[site].follows and site.kind != "half":
            for found in self._climbed(site, side, base, parts):
                return found
        whole = {name: domain for name, domain in self.known.items() if not domain.is_float}
        if whole and (site.kind, side) == ("equality", "equal"):
            for found in self._solved(site, side, base, whole):
                return found
        if whole and site.kind in ("limit", "equality", "truth", "and", "or"):
            tries = mutate(self.watcher, site, side, base.arrays, whole, _TRIES)
            for arrays in self._paid(tries, 1.0, 1.0):
                return Found(parts, arrays, base.sizes)
        return None

    def _solved(
        self, site: DecisionSite, side: str, base: Case, whole: Mapping[str, Domain]
    ) -> Iterator[Found]:
        """Yield rows of which a sum is exactly what it is compared with."""
        stack = self.inputs.stack(self.known)
        if stack is None or stack.passes:
            return
        rows = solved(self.watcher, site, stack.first(base.arrays), whole, stack)
        for row in self._paid(rows, 1.0, 1.0):
            given = next(stack.given(row))
            for shown in self._paid(mutate(self.watcher, site, side, given, whole, 1), 1.0, 1.0):
                yield Found(parts_of(site, side), shown, self.inputs.sized(base.sizes, 1))

    def _climbed(
        self,
        site: DecisionSite,
        side: str,
        base: Case,
        parts: tuple[str, ...],
        columns: torch.Tensor | None = None,
    ) -> Iterator[Found]:
        """Yield what rows have come to, if they have come to something."""
        start = self.start(base, ("start", site.module))
        steps = seek(self.watcher, site, side, start, self.known, columns)
        for arrays in self._paid(steps, WITH_GRADIENTS, self.purse.ratio(start.sizes)):
            yield Found(parts, arrays, start.sizes)

    def _paid(
        self, steps: Iterator[Mapping[str, Array] | None], passes: float, ratio: float
    ) -> Iterator[Mapping[str, Array]]:
        """Yield what steps come to, each of which is paid for before it is gone."""
        while self.purse.takes(passes, ratio):
            try:
                found = next(steps)
            except StopIteration:
                return
            if found is not None:
                yield found

    def start(self, base: Case, key: tuple[str, ...], tried: Sequence[int] = CLIMBERS) -> Start:
        """Return what to climb from, with as many rows as are ``tried`` and pay."""
        if self.inputs.axes.keys() >= base.arrays.keys():
            most = _COST_OF_ROWS * self.purse.cost.forward()
            for rows, sizes in self.inputs.batches(base, tried):
                if self.purse.cost.forward(self.purse.ratio(sizes)) <= most:
                    arrays = self.inputs.draw(self.known, sizes, key, None)
                    return Start(arrays, sizes, rows, self.inputs.axes)
        return Start(base.arrays, base.sizes, axes=self.inputs.axes)
