"""Cases that show what the model's own have not: made once these have been tried, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count as count_from
from pathlib import Path

import numpy as np

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.roles import roles
from onnx_gate.report.model import Weights
from onnx_gate.report.model.check import REACHED
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import is_drawable
from onnx_gate.verify.inputs.sizes import Sizes, elements, sizes_label, tried_sizes
from onnx_gate.verify.reach.account import account, both_ways
from onnx_gate.verify.reach.around import ROWS, around, meeting
from onnx_gate.verify.reach.ascend import ascend
from onnx_gate.verify.reach.brackets import brackets
from onnx_gate.verify.reach.cost import measure
from onnx_gate.verify.reach.domain import Domain, domains
from onnx_gate.verify.reach.drawn import BATCHES, DrawnInputs
from onnx_gate.verify.reach.every import Every
from onnx_gate.verify.reach.margins import MOST_CANDIDATES
from onnx_gate.verify.reach.missing import finite_rows, missing, strewn
from onnx_gate.verify.reach.onwards import onwards
from onnx_gate.verify.reach.purse import LARGEST, MOST_NUMBERS, Purse, count, pairs_of
from onnx_gate.verify.reach.seek import CLIMBERS, follows, mutate, seek
from onnx_gate.verify.reach.shown import Limits
from onnx_gate.verify.reach.sites import MOST_ROWS, DecisionSite, parts_of
from onnx_gate.verify.reach.sizes import further_sizes, grown, named_by_decisions
from onnx_gate.verify.reach.values import IN_ORDER, WAYS
from onnx_gate.verify.reach.watcher import Watcher

# Looking for what was not seen may cost this share of what the run itself does.
SHARE = 0.2
# And so many seconds it may take to go where the module or its file names a size, or has rows of its own:
# by the prices of ``cost`` they are cases whose passes make sixty million numbers together.
_OWED = 1.0
# A pass with gradients goes there and back, and keeps what it meets.
_WITH_GRADIENTS = 3.0
# A pass of rows that climb may cost so many plain ones: where most of it are its calls, it does.
_COST_OF_ROWS = 2.0
# The fewest equal elements of which a count is beyond the narrowest type, a signed byte.
_ALIKE = 2**7 - 1
_TRIES = 6
_KEPT = 3


@dataclass
class Explorer:
    """Makes further cases for a module from what ``watcher`` has seen of it.

    ``numbers`` are those that its export names of sizes. ``bases`` are cases of its own to start from.
    ``weights`` are the file's: the rows of those that are not the module's are all to be read.
    ``opened``: rounding has left elements open in cases that were reached. ``besides`` tells of the
    limits that the file alone has, from the values of a case.
    """

    spec: ModelSpec
    watcher: Watcher
    numbers: Sequence[int] = ()
    bases: list[Case] = field(default_factory=list)
    made: dict[str, Case] = field(default_factory=dict)
    tried: int = 0
    weights: Weights | None = None
    opened: bool = False
    besides: Callable[[Watcher, Mapping[str, Array]], Limits] | None = None
    _before: frozenset[DecisionSite] | None = None

    @cached_property
    def _inputs(self) -> DrawnInputs:
        return DrawnInputs(self.spec)

    def account(
        self, workspace: Path, compared: Collection[tuple[DecisionSite, str]] = ()
    ) -> Decisions | None:
        """Return what the model's decisions were shown, ``None`` where it cannot be watched."""
        if self.watcher.lost or not self.watcher.seen:
            return None
        seen = self.watcher.seen
        before = both_ways(seen) if self._before is None else self._before
        return account(seen, before, workspace.resolve(), compared, self.weights)

    @property
    def doubted(self) -> frozenset[DecisionSite]:
        """The decisions that may have been shown in open elements alone, which were not compared."""
        if not self.opened or self._before is None:
            return frozenset()
        return both_ways(self.watcher.seen) - self._before

    def learn(self, case: Case) -> None:
        """Take note of a case that counts and that the module answers."""
        self.tried += 1
        if len(self.bases) < _KEPT or self._rank(case) < self._rank(self.bases[-1]):
            small = elements(self.spec.inputs, case.sizes) <= LARGEST if case.sizes else True
            if small:
                self.bases = [*self.bases[: _KEPT - 1], case]

    @property
    def base(self) -> Case:
        """The case that others begin with."""
        return min(self.bases, key=lambda each: (*self._rank(each), count(each.arrays)))

    def _rank(self, case: Case) -> tuple[bool, bool]:
        """Order cases: along an axis of one there is nothing that elements do to each other."""
        lengths = (d for d, role in roles(self.spec.inputs).items() if role != "batch")
        return case.is_edge, any(case.sizes.get(dim) == 1 for dim in lengths)

    def forget(self) -> None:
        """Begin anew, with what the watcher has seen as well."""
        self.bases, self.tried = [], 0
        self.watcher.forget()

    def cases(self) -> Iterator[Case]:
        """Yield the cases; each shows something, or stands for values that the module names.

        What the module refuses, or answers with numbers that are no longer finite, is none of them.
        """
        if self.watcher.lost or not self.bases:
            return
        self._before = both_ways(self.watcher.seen)
        base = self.base
        try:
            cost = measure(self.watcher.eager, base.arrays)
        except Refusal:
            return
        doubled = partial(self._inputs.draw, {}, key=("twice",), way=None)
        of = partial(pairs_of, self.spec, self.watcher.eager, base, cost, doubled)
        left = SHARE * cost.run(self.tried)
        purse = Purse(left, cost, self.spec.inputs, of(batch=True), of(batch=False))
        if self.besides is not None:
            self.watcher.besides = self.besides(self.watcher, base.arrays)
            if self.watcher.besides:
                self.watcher.run(base.arrays)
        known = self._known(base.sizes)
        for draft in self._drafts(base, known, purse):
            if draft.id not in self.made:
                self.made[draft.id] = draft
                yield draft

    def _known(self, sizes: Sizes) -> dict[str, Domain]:
        constants = (*self.watcher.constants, *self.watcher.limits_of_inputs)
        return domains(self.spec, sizes, self.watcher.hulls, constants)

    def _drafts(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        with purse.part(0.4):
            yield from self._values(base, known, purse)
            yield from self._missing(base, known, purse)
            yield from self._every(base, known, purse)
        with purse.part(0.3):
            yield from self._bracketed(base, known, purse)
        with purse.part(0.6):
            yield from self._onwards(base, purse)
            yield from self._paths(base, purse)
            yield from self._sizes(base, known, purse)
        with purse.part(0.7):
            yield from self._sought(base, known, purse)
        with purse.part(0.7):
            yield from self._around(base, known, purse)
        yield from self._raised(base, known, purse)

    def _around(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield the neighbours of rows in which conditions hold together."""
        batch = self._inputs.batch & set(base.sizes)
        if not known or not self._inputs.by_rows(known):
            return
        for (site, side), row in meeting(self.watcher.met, base.arrays, known):
            ratio = purse.ratio(base, {**base.sizes, **dict.fromkeys(batch, ROWS)})
            arrays = around(self.watcher.eager, row, known, partial(purse.takes, 1.0, ratio))
            rows = max(len(arrays[name]) for name in known)
            sizes = {**base.sizes, **dict.fromkeys(batch, rows)}
            if rows and purse.affords(base, sizes) and self._answers(arrays, purse, base, sizes):
                yield self._new(("around", *parts_of(site, side)), arrays, sizes)

    def _raised(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield what makes results of layers as large as inputs can."""
        if purse.cost.numbers > MOST_NUMBERS:
            return
        pays = partial(purse.takes, _WITH_GRADIENTS)
        for number, arrays in ascend(self.watcher, base.arrays, known, pays):
            if self._answers(arrays, purse, base, base.sizes):
                yield self._case(("large", str(number)), arrays, base.sizes)

    def _values(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield values that the module names: all ways in one large batch, or a case for each."""
        if not known:
            return
        for rows, sizes in self._inputs.batches(base):
            if rows >= len(WAYS) and purse.affords(base, sizes):
                arrays = self._inputs.draw(known, sizes, ("values",), None)
                if self._answers(arrays, purse, base, sizes):
                    yield self._case(("values", sizes_label(sizes)), arrays, sizes)
                    return
        for way, name in enumerate(WAYS):
            if not purse.affords(base, base.sizes):
                return
            arrays = self._inputs.beside(base, known, base.sizes, ("values", name), way)
            if self._answers(arrays, purse, base, base.sizes):
                yield self._case(("values", name.replace(" ", "-")), arrays, base.sizes)

    def _missing(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield NaN and infinity where the module asks for them: the rows that it makes finite."""
        for parts, value, names in missing({*self.watcher.asked}, known):
            sizes = self._inputs.largest_batch(base, purse.affords, BATCHES)
            if sizes is None:
                return
            drawn = self._inputs.beside(base, known, sizes, (parts,), 0)
            arrays = strewn(drawn, names, value, parts)
            if self._inputs.by_rows(arrays):
                kept = finite_rows(self.watcher.eager, arrays)
                purse.pay(purse.cost.forward(purse.ratio(base, sizes)))
                arrays = {name: array[kept] for name, array in arrays.items()}
                sizes = {**sizes, **dict.fromkeys(self._inputs.batch & set(sizes), len(kept))}
            some = all(array.size for array in arrays.values())
            if some and self._answers(arrays, purse, base, sizes):
                yield self._case((parts,), arrays, sizes)

    def _every(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield every value of integer inputs, and every row of tables where it may be another."""
        unknown = self.weights is not None and bool(self.weights.unknown)
        every = Every(self._inputs, self.watcher, base, known, unknown)
        with purse.least(_OWED if unknown else 0.0):
            for drafts in (every.values(purse), every.rows(purse)):
                for draft in drafts:
                    if not self._answers(draft.arrays, purse, base, draft.sizes):
                        break
                    yield self._case(draft.parts, draft.arrays, draft.sizes)
        for draft in every.extremes(purse):
            if self._answers(draft.arrays, purse, base, draft.sizes):
                yield self._case(draft.parts, draft.arrays, draft.sizes)

    def _bracketed(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield, row by row, both sides of what changes with a single input's value."""
        batch = self._inputs.batch & set(base.sizes)
        axes = self._inputs.batch_axes
        if any(any(axis[1:]) for axis in axes.values()):
            return
        for name, domain in known.items():
            few = not domain.is_float and domain.high - domain.low < MOST_ROWS
            if few or not any(axes[name]) or not base.arrays[name].size:
                continue

            def made_of(values: Array, name: str = name) -> dict[str, Array]:
                arrays = {
                    n: np.repeat(a[:1], len(values), axis=0) if any(axes[n]) else a
                    for n, a in base.arrays.items()
                }
                column = values.reshape(-1, *[1] * (arrays[name].ndim - 1))
                arrays[name] = np.broadcast_to(column, arrays[name].shape).astype(
                    arrays[name].dtype
                )
                return arrays

            for rows, sizes in self._inputs.batches(base):
                ratio = purse.ratio(base, sizes)
                if purse.affords(base, sizes):
                    pays = partial(purse.takes, 1.0, ratio)
                    found = brackets(self.watcher.eager, name, domain, rows, made_of, pays)
                    sizes = {**sizes, **dict.fromkeys(batch, len(found))}
                    if len(found) and self._answers(made_of(found), purse, base, sizes):
                        yield self._case(("steps", name), made_of(found), sizes)
                    break

    def _sizes(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield sizes that the code names, and some that small numbers divide.

        Those beyond the tested ones also with all elements of a row alike, which are counted together.
        """
        if not all(is_drawable(each) for each in self.spec.inputs.values()):
            return
        largest = self._largest
        further = list(further_sizes(self.spec, self._numbers(), base.sizes))
        for owed in (True, False):
            with purse.least(_OWED if owed else 0.0):
                for name, sizes, named in further:
                    if named == owed:
                        yield from self._at_sizes(name, sizes, base, purse, known, largest)

    @property
    def _largest(self) -> int:
        """The largest size that was tested."""
        return max((s for sizes in tried_sizes(self.spec) for s in sizes.values()), default=0)

    def _numbers(self) -> frozenset[int]:
        """Return the numbers that the code, the file and decisions name."""
        return frozenset((*self.numbers, *named_by_decisions(self.watcher.seen, self._largest)))

    def _onwards(self, base: Case, purse: Purse) -> Iterator[Case]:
        """Yield more calls in a row than the manifest asks for."""
        numbers = self._numbers()
        steps = onwards(self.spec, self.watcher.eager, base, numbers, purse, _OWED)
        if steps:
            made = self._case(("onwards", f"steps={steps}"), base.arrays, base.sizes)
            yield replace(made, steps=steps)

    def _at_sizes(
        self,
        name: str,
        sizes: Sizes,
        base: Case,
        purse: Purse,
        known: Mapping[str, Domain],
        largest: int,
    ) -> Iterator[Case]:
        """Yield a case of some sizes, and beyond the ``largest`` tested ones one of equal elements."""
        if not purse.affords(base, sizes, longer=True):
            return
        beyond = known and max(sizes.values()) > max(largest, _ALIKE)
        for way in (None, WAYS.index("all alike")) if beyond else (None,):
            domain, parts = {}, ("sizes", name)
            if way is not None:
                domain, parts = self._known(sizes), ("alike", name)
            if way is not None and not purse.affords(base, sizes, longer=True):
                break
            arrays = self._inputs.draw(domain, sizes, parts, way)
            if self._answers(arrays, purse, base, sizes, longer=True):
                yield self._case(parts, arrays, sizes)

    def _paths(self, base: Case, purse: Purse) -> Iterator[Case]:
        """Yield numbers of things, as a tree's parents or a graph's edges are, that make one long path."""
        numbers = {name for name, each in self.spec.inputs.items() if each.bounds is not None}
        if not numbers or not all(map(is_drawable, self.spec.inputs.values())):
            return
        for sizes in grown(self.spec, base.sizes):
            if purse.affords(base, sizes, longer=True):
                known = {n: each for n, each in self._known(sizes).items() if n in numbers}
                arrays = self._inputs.draw(known, sizes, ("path",), IN_ORDER)
                if self._answers(arrays, purse, base, sizes, longer=True):
                    yield self._case(("path", sizes_label(sizes)), arrays, sizes)
                    return

    def _sought(self, base: Case, known: Mapping[str, Domain], purse: Purse) -> Iterator[Case]:
        """Yield what steps towards the sides that are still unseen come to."""
        if not known or purse.cost.numbers > MOST_NUMBERS or not purse.takes(_WITH_GRADIENTS):
            return
        follows(self.watcher, base.arrays, known)
        for site, side in self.watcher.open():
            seen = self.watcher.seen.get(site)
            if seen is None or side not in seen.left(site) or not seen.moves:
                continue
            # Of rows each way leads to one that is still unread.
            for _ in range(MOST_CANDIDATES if site.kind == "rows" else 1):
                if side not in self.watcher.seen[site].left(site):
                    break
                found = self._found(site, side, base, known, purse)
                if found is None or not self._answers(found[0], purse, base, found[1]):
                    break
                yield self._new(parts_of(site, side), *found)

    def _found(
        self, site: DecisionSite, side: str, base: Case, known: Mapping[str, Domain], purse: Purse
    ) -> tuple[Mapping[str, Array], Sizes] | None:
        if self.watcher.seen[site].follows and site.kind != "half":
            start, sizes, rows = self._start(site, base, known, purse)
            price = _WITH_GRADIENTS, purse.ratio(base, sizes)
            for found in seek(self.watcher, site, side, start, known, rows):
                if found is not None:
                    return found, sizes
                if not purse.takes(*price):
                    return None
        whole = {name: domain for name, domain in known.items() if not domain.is_float}
        if whole and site.kind in ("limit", "equality", "truth", "and", "or"):
            for found in mutate(self.watcher, site, side, base.arrays, whole, _TRIES):
                if found is not None:
                    return found, base.sizes
                if not purse.takes(1.0):
                    return None
        return None

    def _start(
        self, site: DecisionSite, base: Case, known: Mapping[str, Domain], purse: Purse
    ) -> tuple[Mapping[str, Array], Sizes, int]:
        """Return inputs to climb from, their sizes and the number of rows that climb."""
        if self._inputs.by_rows(base.arrays):
            most = _COST_OF_ROWS * purse.cost.forward()
            for rows, sizes in self._inputs.batches(base, CLIMBERS):
                if purse.cost.forward(purse.ratio(base, sizes)) <= most:
                    return (
                        self._inputs.draw(known, sizes, ("start", site.module), None),
                        sizes,
                        rows,
                    )
        return base.arrays, base.sizes, 1

    def _answers(
        self,
        arrays: Mapping[str, Array],
        purse: Purse,
        base: Case,
        sizes: Sizes,
        longer: bool = False,
    ) -> bool:
        """Return whether the module answers with finite numbers; what it decides is remembered."""
        ratio = purse.ratio(base, sizes, longer)
        try:
            outputs = self.watcher.run(arrays)
        except Refusal:
            purse.pay(purse.cost.forward())  # it says so early
            return False
        purse.pay(purse.cost.case(ratio))
        return all(
            bool(np.isfinite(array.astype(np.float64)).all())
            for array in outputs.arrays
            if array.dtype.kind in "fV"
        )

    def _new(self, parts: Sequence[str], arrays: Mapping[str, Array], sizes: Sizes) -> Case:
        """Return a case of a decision: of two on one line each has cases of its own."""
        tried = (self._case([*parts, *[str(n)] * (n > 0)], arrays, sizes) for n in count_from(0))
        return next(case for case in tried if case.id not in self.made)

    def _case(self, parts: Sequence[str], arrays: Mapping[str, Array], sizes: Sizes) -> Case:
        parts = [part for part in parts if part]
        name = "/".join((REACHED, *parts))
        # What is computed of an array without axes is none, and no engine takes it.
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        return Case(REACHED, name, REACHED, arrays, sizes, named=False, sized=False)
