"""One coordinate after the other: rows on both sides of whatever changes with an element of an input.

From several rows each element alone, and all of an input together, goes through its domain. Where whole
numbers only come next to a limit, each row that does is gone on from with the other inputs: `day * 86400 +
sec` is a day first, and then a second of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.around import columns_of
from onnx_gate.verify.reach.crossings import ALL, GRID, Crossings, Lines, crossings
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.stack import Stack

# A year, a day and a second: no more coordinates than that follow each other.
_DEEPEST = 2


@dataclass(frozen=True)
class Sweeps:
    """Sweeps from ``bases``, rows of inputs of ``known`` domains, by passes of so many ``rows``."""

    eager: Eager
    bases: Mapping[str, Array]
    known: Mapping[str, Domain]
    rows: int
    stack: Stack
    pays: Callable[[], bool]
    _met: set[int] = field(default_factory=set)
    _made: dict[str, list[Crossings]] = field(default_factory=dict)

    def found(self) -> Iterator[tuple[tuple[str, ...], Mapping[str, Array]]]:
        """Yield rows on both sides of what changes, as two cases of each input that is moved last."""
        near = []
        names = [n for n in self.known if n in self.stack.axes and self.bases[n][:1].size]
        for name in names:
            # Of small domains each value has come already, but next to a limit others may go on.
            few = self.known[name].is_small
            if few and (self.stack.passes or len(names) == 1):
                continue
            found = self._swept(self.bases, name)
            if found is not None:
                near.append((name, found))
                if not few:
                    self._made.setdefault(name, []).append(found)
        for name, found in near:
            self._onwards((name,), found)
        for name, made in self._made.items():
            yield (name, "even"), self._joined([each.even for each in made])
            yield (name,), self._joined([each.others for each in made])

    def _joined(self, parts: list[Mapping[str, Array]]) -> dict[str, Array]:
        """Return the rows of several as those of one, no more than a pass has."""
        return self.stack.at(self.stack.joined(parts), slice(self.rows))

    def _onwards(self, moved: tuple[str, ...], found: Crossings) -> None:
        """Go on with other inputs from rows that are next to a limit."""
        bases = found.near(self._met, self.stack)
        if bases is None or len(moved) > _DEEPEST:
            return
        for name in self.known:
            if name in moved or name not in self.stack.axes or not bases[name].size:
                continue
            further = self._swept(bases, name)
            if further is not None:
                self._made.setdefault(name, []).insert(0, further)
                self._onwards((*moved, name), further)

    def _swept(self, bases: Mapping[str, Array], name: str) -> Crossings | None:
        lines, domain = self._lines(bases, name), self.known[name]
        found = crossings(self.eager, lines, domain, self.rows, self.stack, self.pays)
        if found is not None:
            self._met.update(found.met)
        return found

    def _lines(self, bases: Mapping[str, Array], name: str) -> Lines:
        """Return a line for all elements of each base, and for each element of as many as there may be."""
        base, size = np.arange(len(bases[name])), bases[name][0].size
        alone = [0] if size == 1 else [ALL]
        most = self.rows // GRID if self.stack.passes else None
        pairs = list(itertools.product(base[:most], alone))
        if size > 1 and not self.stack.passes:
            each = itertools.product(base, map(int, columns_of(bases[name][0])))
            pairs += itertools.islice(each, self.rows // 2 // GRID)
        of, column = np.array(pairs, np.int64).T
        return Lines(bases, name, of, column)
