"""One search for cases that show what a model's own have not: drawn, tried, sought and climbed to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

import numpy as np

from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label
from onnx_gate.verify.reach.around import (
    PASSES,
    ROWS,
    around,
    in_turns_around,
    meeting,
    met_alike,
    pairs_around,
    rolled_around,
    stepped_around,
)
from onnx_gate.verify.reach.ascend import ascend
from onnx_gate.verify.reach.between import LINES, OF_LINE, between
from onnx_gate.verify.reach.climbs import WITH_GRADIENTS, Climbs, Found
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drafts import Drafts, KeptRows
from onnx_gate.verify.reach.drawn import BATCHES, DrawnInputs
from onnx_gate.verify.reach.every import Every
from onnx_gate.verify.reach.every_size import Answers
from onnx_gate.verify.reach.file_sides import DecidingFile, found_in
from onnx_gate.verify.reach.margins import ORDERINGS
from onnx_gate.verify.reach.own_lines import OwnLines
from onnx_gate.verify.reach.passes import CASES, CHEAP, MOST, PLAIN, in_turn, told
from onnx_gate.verify.reach.purse import MOST_NUMBERS, OWED, Purse
from onnx_gate.verify.reach.seek import RAISERS
from onnx_gate.verify.reach.sites import DecisionSite, parts_of
from onnx_gate.verify.reach.size_search import SizeSearch
from onnx_gate.verify.reach.stack import Stack, moved
from onnx_gate.verify.reach.sweeps import Sweeps
from onnx_gate.verify.reach.values import WAYS, missing, strewn
from onnx_gate.verify.reach.watcher import Watcher

# So many seconds where tables have rows that are far from all others, and choices may be near.
_OWED_TO_FEW = 0.2
# Lines of so many rows come in turns.
_MET = 8
# So many rows at most are what a search for changes usually finds.
_FOUND = 256
# Beside a row of the suites those drawn in the first ways: of many changes both ends are followed, so whole
# numbers come first and halves last. What is computed of these is exact.
_BASES = 5
_ORDER = [3, 0, 1, 2, 5, 4]


@dataclass(frozen=True)
class CaseSearch:
    """Looks for cases from the ``base`` of a purse, in their ``known`` domains.

    ``numbers`` are those that the export names of sizes, ``lengths`` those at which its types end.
    ``unknown``: the file has weights that are none of the module's, whose rows are all to be read. What
    is in ``made`` has its name already. ``tables`` are those of files beside the module's, ``told`` rows
    that a file tells apart, and ``files`` those whose decisions nothing watches. ``answers`` are a file's,
    where it computes with sizes.
    """

    spec: ModelSpec
    watcher: Watcher
    inputs: DrawnInputs
    purse: Purse
    known: Mapping[str, Domain]
    numbers: Sequence[int]
    lengths: Sequence[int]
    unknown: bool
    made: Collection[str]
    tables: Sequence[Array] = ()
    told: Sequence[tuple[str, Array]] = ()
    files: Callable[[], Iterable[DecidingFile]] = tuple
    answers: Answers | None = None

    @cached_property
    def _drafts(self) -> Drafts:
        kept = KeptRows(self.watcher, self.inputs, self.purse, self.known)
        return Drafts(kept, self.made)

    @property
    def _sizes(self) -> SizeSearch:
        return SizeSearch(
            self.spec,
            self.watcher,
            self.inputs,
            self.purse,
            self._drafts,
            self.numbers,
            self.lengths,
            self.answers,
        )

    @property
    def base(self) -> Case:
        """The case that all others begin with."""
        return self.purse.base

    def cases(self) -> Iterator[Case]:
        """Yield the cases, the cheapest that show most first."""
        with self.purse.part(0.4):
            yield from self._values()
            yield from self._missing()
            yield from self._every()
            with self._passed():
                yield from self._passes()
        yield from self._of_files()
        with self.purse.part(0.3), self._passed():
            yield from self._swept()
        with self.purse.part(0.6):
            yield from self._sizes.cases()
        with self.purse.part(0.7), self._least():
            yield from self._climbed(Climbs.sides)
        # What is stored is far beyond limits that climbs end next to.
        with self.purse.least(OWED if self.told else _OWED_TO_FEW):
            yield from self._lines()
        owed = _OWED_TO_FEW if self.watcher.chooses else 0.0
        for follow in (self._around, self._between):
            with self.purse.part(0.7), self._passed(), self.purse.least(owed):
                yield from follow()
        with self.purse.part(0.8):
            yield from self._climbed(Climbs.columns)
        yield from self._raised()

    def _around(self) -> Iterator[Case]:
        """Yield the neighbours of rows in which conditions hold together, and of one beside comparisons."""
        stack = self._stack
        if stack is None or not self._of_rows(stack):
            return
        gone: set[tuple[DecisionSite, str]] = set()
        own = stack.first(self.base.arrays)
        if not stack.passes:
            rows = [row for _, row in met_alike(self.watcher.met, own, self.known, stack)]
            for most in (_MET, 2):
                turns = in_turns_around([own, *rows[:most]], self._of_rows(stack), stack)
                cases = [*self._rows(("around", "turns"), turns, stack)]
                yield from cases
                if cases:
                    break
        while True:
            # What was moved may have made more conditions meet.
            met = meeting(self.watcher.met, own, self.known, stack)
            found = next((each for each in met if each[0] not in gone), None)
            if found is None:
                break
            gone.add(found[0])
            yield from self._beside(("around", *parts_of(*found[0])), found[1], stack)
        ordered = any(site.operator in ORDERINGS for site in self.watcher.seen)
        if ordered or self.watcher.chooses:
            yield from self._beside(("around",), own, stack)

    def _between(self) -> Iterator[Case]:
        """Yield rows next to where, on the way from one to another, another one is chosen."""
        stack = self._stack
        if stack is None or not self.watcher.chooses:
            return
        names = [name for name, each in self._of_rows(stack).items() if each.is_float]
        for drawn, pays in self._ends(stack) if names else ():
            found = between(self.watcher.eager, drawn, names, stack, pays)
            if found is not None:
                yield from self._rows(("between",), found, stack)
            return

    def _ends(self, stack: Stack) -> Iterator[tuple[dict[str, Array], Callable[[], bool]]]:
        """Yield rows to draw lines between, as many as there is enough for, with what pays for them."""
        if stack.passes:
            drawn = self.inputs.rows(self.base, self.known, 4 * LINES, ("between",))
            yield drawn, partial(self.purse.takes, float(LINES))
            return
        for rows, sizes in self.inputs.batches(self.base):
            if self.purse.affords(sizes):
                few = self.inputs.sized(self.base.sizes, rows // OF_LINE)
                known = {} if self.spec.draws_all else self.known
                drawn = self._fronts(self.inputs.draw(known, few, ("between",), None), stack)
                yield drawn, partial(self.purse.takes, 1.0, self.purse.ratio(few))

    def _fronts(self, arrays: Mapping[str, Array], stack: Stack) -> dict[str, Array]:
        """Return inputs with the rows' axis in front."""
        return {n: moved(array, stack.axes.get(n, 0), 0) for n, array in arrays.items()}

    def _beside(
        self, parts: tuple[str, ...], row: Mapping[str, Array], stack: Stack
    ) -> Iterator[Case]:
        pays = self._pays(PASSES if stack.passes else ROWS, stack)
        known = self._of_rows(stack)
        yield from self._rows(parts, around(self.watcher.eager, row, known, stack, pays), stack)
        yield from self._rows(parts, rolled_around(row, known, stack), stack)
        if not stack.passes:
            yield from self._rows(parts, pairs_around(row, known, stack), stack)
            yield from self._rows(parts, stepped_around(row, known, stack, self.numbers), stack)

    def _of_rows(self, stack: Stack) -> dict[str, Domain]:
        """Return the inputs of which there are rows: others are the same for all."""
        return {name: each for name, each in self.known.items() if name in stack.axes}

    @property
    def _stack(self) -> Stack | None:
        """How rows are given, ``None`` where they are passes and these are not cheap."""
        stack, cheap = self.inputs.stack(self.known), CHEAP * self.purse.cost.forward() <= OWED
        return None if stack is not None and stack.passes and not cheap else stack

    def _passed(self) -> AbstractContextManager[None]:
        """Spend something on rows that are passes, however short the run is."""
        stack = self._stack
        return self.purse.least(OWED if stack is not None and stack.passes else 0.0)

    def _sized(self, rows: int, stack: Stack) -> Sizes:
        """Return the sizes of so many rows."""
        return self.base.sizes if stack.passes else self.inputs.sized(self.base.sizes, rows)

    def _pays(self, rows: int, stack: Stack) -> Callable[[], bool]:
        """Return what pays for so many rows, if there is enough for these and a case of what they show."""
        ratio = self.purse.ratio(self._sized(rows, stack))
        found, passes = (
            self._sized(min(_FOUND, 4 * rows), stack),
            float(rows) if stack.passes else 1.0,
        )
        return lambda: self.purse.affords(found) and self.purse.takes(passes, ratio)

    def _rows(
        self, parts: Sequence[str], arrays: Mapping[str, Array], stack: Stack
    ) -> Iterator[Case]:
        """Yield a case of rows, or where each is a pass a case of each of the first."""
        count = stack.count(arrays)
        sizes = self._sized(count, stack)
        for given in islice(stack.given(arrays), CASES) if count else ():
            kept = self._drafts.kept.of(given, sizes) if self.purse.affords(sizes) else None
            if kept is not None:
                yield self._drafts.new(parts, *kept)

    def _passes(self) -> Iterator[Case]:
        """Yield passes that show what none has: of constants in turn, and of what is drawn.

        Where nothing is decided there is nothing to be shown.
        """
        stack = self._stack
        if stack is None or not stack.passes or not self.watcher.seen:
            return
        turns = {**self.base.arrays, **in_turn(self.known, self.base.arrays)}
        drawn = self.inputs.rows(self.base, self.known, MOST, ("values", "passes"))
        for parts, arrays in ((("values", "turn"), turns), (("values", "drawn"), drawn)):
            plain, left = PLAIN, CASES
            before = told(self.watcher.seen, self.unknown)
            for given in stack.given(arrays):
                if not left or not self.purse.takes(1.0):
                    break
                if self._drafts.kept.of(given, self.base.sizes, pays=False) is None:
                    continue
                before, last = told(self.watcher.seen, self.unknown), before
                new = before != last
                if new or plain:
                    plain, left = plain - (not new), left - 1
                    self.purse.pay(self.purse.cost.case() - self.purse.cost.forward())
                    yield self._drafts.new(parts, given, self.base.sizes)

    def _raised(self) -> Iterator[Case]:
        """Yield what makes results of layers as large as inputs can."""
        if self.purse.cost.numbers > MOST_NUMBERS:
            return
        climbs = Climbs(self.watcher, self.inputs, self.purse, self.known)
        start = climbs.start(self.base, ("raise",), RAISERS)
        pays = partial(self.purse.takes, WITH_GRADIENTS, self.purse.ratio(start.sizes))
        for number, raised in enumerate(ascend(self.watcher, start, self.known, pays)):
            yield from self._drafts.told(("large", str(number)), raised, start.sizes)

    def _values(self) -> Iterator[Case]:
        """Yield values that the module names: all ways in one large batch, or a case for each."""
        if not self.known:
            return
        for rows, sizes in self.inputs.batches(self.base):
            if rows >= len(WAYS) and self.purse.affords(sizes):
                arrays = self.inputs.draw(self.known, sizes, ("values",), None)
                kept = self._drafts.kept.of(arrays, sizes)
                if kept is not None:
                    yield self._drafts.case(("values", sizes_label(sizes)), *kept)
                    return
        for way, name in enumerate(WAYS):
            if not self.purse.affords(self.base.sizes):
                return
            arrays = self.inputs.beside(
                self.base, self.known, self.base.sizes, ("values", name), way
            )
            yield from self._drafts.told(
                ("values", name.replace(" ", "-")), arrays, self.base.sizes
            )

    def _missing(self) -> Iterator[Case]:
        """Yield NaN and infinity where the module asks for them: the rows that it makes finite."""
        for parts, value, names in missing({*self.watcher.asked}, self.known):
            sizes = self.inputs.largest_batch(self.base, self.purse.affords, BATCHES)
            if sizes is None:
                return
            drawn = self.inputs.beside(self.base, self.known, sizes, (parts,), 0)
            yield from self._drafts.told((parts,), strewn(drawn, names, value, parts), sizes)

    def _every(self) -> Iterator[Case]:
        """Yield every value of integer inputs, and every row of tables where it may be another."""
        every = self._all
        with self._least():
            for drafts in (every.values(self.purse), every.rows(self.purse)):
                for draft in drafts:
                    kept = self._drafts.kept.of(draft.arrays, draft.sizes)
                    if kept is None:
                        break
                    yield self._drafts.case(draft.parts, *kept)
        with self.purse.least(_OWED_TO_FEW):
            for draft in every.extremes(self.purse):
                yield from self._drafts.told(draft.parts, draft.arrays, draft.sizes)

    def _lines(self) -> Iterator[Case]:
        """Yield rows that have lines of what is stored, where inputs have lines as long."""
        stack = self._stack
        if stack is None:
            return
        own = OwnLines(self.inputs, self.base, self.known, self.tables, self.told)
        for name, rows in own.apart(stack, self.purse):
            yield from self._rows(("apart", name), rows, stack)
        for name, rows in own.rows(self.watcher.eager.module, stack, self.purse):
            yield from self._rows(("lines", name), rows, stack)

    def _of_files(self) -> Iterator[Case]:
        """Yield rows that show what files decide, where no module is there to be watched."""
        stack = self.inputs.stack(self.known)
        if stack is not None and self.known:
            found = found_in(self.files, self.inputs, self.known, stack, self.purse, OWED)
            for side, rows in found:
                yield from self._rows(side.parts, rows, stack)

    def _least(self) -> AbstractContextManager[None]:
        """Spend something where the file may do otherwise, however short the run is."""
        return self.purse.least(OWED if self._all.owed else 0.0)

    @property
    def _all(self) -> Every:
        return Every(self.inputs, self.watcher, self.base, self.known, self.unknown)

    def _swept(self) -> Iterator[Case]:
        """Yield, row by row, both sides of what changes with an element of an input, and its limit."""
        stack = self._stack
        if stack is None:
            return
        tried = [(ROWS, self.base.sizes)] if stack.passes else self.inputs.batches(self.base)
        for rows, sizes in tried:
            if self.purse.affords(sizes):
                bases, pays = self._bases(stack), self._pays(rows, stack)
                sweeps = Sweeps(self.watcher.eager, bases, self.known, rows, stack, pays)
                for parts, found in sweeps.found():
                    yield from self._rows(("steps", *parts), found, stack)
                return

    def _bases(self, stack: Stack) -> Mapping[str, Array]:
        """Return rows to sweep from: the base's first, and one of each of the first ways.

        Of many changes those at both ends are followed: there are whole numbers, and halves.
        """
        own = stack.first(self.base.arrays)
        if stack.passes:
            return own
        sizes = self.inputs.sized(self.base.sizes, _BASES)
        drawn = self.inputs.beside(self.base, self.known, sizes, ("steps",), None)
        bases = stack.at(stack.joined((own, self._fronts(drawn, stack))), np.array(_ORDER))
        for name, domain in self._of_rows(stack).items():
            if not domain.is_float and domain.high - domain.low < len(_ORDER):
                # Of few codes each comes in every column.
                place = np.arange(len(_ORDER))[:, None] + np.arange(own[name].size)
                codes = domain.ends[0] + place % (domain.ends[1] - domain.ends[0] + 1)
                bases[name] = codes.reshape(bases[name].shape).astype(bases[name].dtype)
        return bases

    def _climbed(self, find: Callable[[Climbs, Case], Iterator[Found]]) -> Iterator[Case]:
        """Yield what steps towards sides, or columns, that are still unseen come to."""
        climbs = Climbs(self.watcher, self.inputs, self.purse, self.known)
        for found in find(climbs, self.base):
            kept = self._drafts.kept.of(found.arrays, found.sizes)
            if kept is not None:
                yield self._drafts.new(found.parts, *kept)
