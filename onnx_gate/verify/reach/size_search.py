"""Cases of other sizes: those that a file, the code and decisions name, and the longest that there are.

And of more calls in a row than the manifest asks for: to beyond what the code names, or to what they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.values.steps import MAX_STEPS
from onnx_gate.runtimes.base import Outputs
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import is_drawable
from onnx_gate.verify.inputs.sizes import Sizes, elements, sizes_label, tried_sizes
from onnx_gate.verify.reach.domain import Domain, domains
from onnx_gate.verify.reach.drafts import Drafts
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.events import ROWS, with_events
from onnx_gate.verify.reach.every_size import Answers, EverySize
from onnx_gate.verify.reach.growth import Growth
from onnx_gate.verify.reach.purse import LARGEST, OWED, SIDES, Purse
from onnx_gate.verify.reach.sizes import (
    LARGER,
    distant_sizes,
    free_dimensions,
    further_sizes,
    given_lengths,
    grown,
    long_dimensions,
    named_by_decisions,
    sizes_along,
)
from onnx_gate.verify.reach.values import IN_ORDER, WAYS
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.steps.feedback import Arrays
from onnx_gate.verify.steps.trajectory import steps_answered, steps_of

# The fewest equal elements of which a count is beyond the narrowest type, a signed byte.
_ALIKE = 2**7 - 1
# Of so many named numbers, the largest, things happen as far apart, and so many seconds it may take.
_APART, _OWED_TO_EVENTS = 8, 0.2
# So many rows stay as they are: two of each way of drawing them.
_HELD = 2 * len(WAYS)


@dataclass(frozen=True)
class SizeSearch:
    """Draws cases of sizes that no case of a model's own has.

    ``numbers`` are those that the export names of sizes, ``lengths`` those at which its types end.
    ``answers`` are a file's, where it divides sizes or computes with them in floats.
    """

    spec: ModelSpec
    watcher: Watcher
    inputs: DrawnInputs
    purse: Purse
    drafts: Drafts
    numbers: Sequence[int]
    lengths: Sequence[int]
    answers: Answers | None = None

    def cases(self) -> Iterator[Case]:
        """Yield the cases: more calls in a row, long paths, and other sizes."""
        yield from self._onwards()
        yield from self._paths()
        if not all(is_drawable(each) for each in self.spec.inputs.values()):
            return
        yield from self._grown()
        yield from self._every()
        with self.purse.least(_OWED_TO_EVENTS):
            yield from self._events()
        yield from self._sizes()

    def _sizes(self) -> Iterator[Case]:
        """Yield sizes at which the file's types end, that the code names, and that leave other remainders.

        Those beyond the tested ones also with all elements of a row alike, which are counted together.
        """
        largest = self._largest
        distant = list(distant_sizes(self.spec, self.lengths, self.purse.base.sizes))
        further = list(further_sizes(self.spec, self._numbers(), self.purse.base.sizes))
        with self.purse.least(OWED if distant else 0.0):
            for name, sizes in distant:
                yield from self._at_sizes(name, sizes, largest)
                yield from self._ending(name, sizes)
        for owed in (True, False):
            with self.purse.least(OWED if owed else 0.0):
                for name, sizes, named in further:
                    if named == owed:
                        yield from self._at_sizes(name, sizes, largest)

    def _grown(self) -> Iterator[Case]:
        """Yield sizes at which what follows from them alone comes to a limit."""
        with self.purse.least(OWED):
            growth = Growth(self.spec, self.watcher, self.inputs, self.purse)
            for name, sizes in growth.sizes():
                yield from self._at_sizes(name, sizes, self._largest)

    def _every(self) -> Iterator[Case]:
        """Yield small sizes at which a file says something else, where it computes with them."""
        if self.answers is None:
            return
        eager = self.watcher.eager
        with self.purse.least(OWED):
            every = EverySize(self.spec, eager, self.answers, self.inputs, self.purse)
            for name, sizes, arrays in every.differing():
                yield from self.drafts.told(("sizes", name), arrays, sizes, longer=True)

    def _events(self) -> Iterator[Case]:
        """Yield rows in which something happens twice, as far apart as the code names, or lasts as long.

        Where nothing is decided, what is next to each other tells as much.
        """
        decides = any(not site.has_rows for site in self.watcher.seen)
        if not self.inputs.grows or not (decides or self.watcher.chooses):
            return
        free = free_dimensions(self.spec, self.purse.base.sizes)
        numbers = [n for n in sorted(self._numbers()) if n > 1]
        for dim in long_dimensions(self.spec, free):
            mosts = range(len(numbers), 0, -1)
            lengths = (sizes_along(self.spec, free, dim, numbers[n - 1] + 2) for n in mosts)
            few = (numbers[max(0, most - _APART) : most] for most in mosts)
            yield from self._happening(dim, zip(few, lengths, strict=True))
        for given, length in given_lengths(self.spec, free).items():
            within = [n for n in numbers if n < length][-_APART:]
            sizes = {given: length} if isinstance(given, str) else {}
            yield from self._happening(given, ((within[n:], sizes) for n in range(len(within))))

    def _happening(
        self, dim: str | int, tried: Iterable[tuple[Sequence[int], Sizes]]
    ) -> Iterator[Case]:
        """Yield the first of these numbers, each at its sizes, that there is enough for."""
        for numbers, sizes in tried:
            found = [*self._apart(dim, numbers, {**self.purse.base.sizes, **sizes})]
            yield from found
            if found:
                return

    def _apart(self, dim: str | int, numbers: Sequence[int], sizes: Sizes) -> Iterator[Case]:
        sizes = self.inputs.sized(sizes, ROWS * len(numbers))
        few = elements(self.spec.inputs, sizes) <= LARGEST
        if not few or not self.purse.affords(sizes, longer=True):
            return
        known, axes = domains_at(self.spec, self.watcher, sizes), self.inputs.axes
        shapes = {name: self.spec.inputs[name].shape for name in known if name in axes}
        along = {
            n: [*s].index(dim) for n, s in shapes.items() if dim in s and [*s].index(dim) != axes[n]
        }
        if along:
            parts = ("events", sizes_label({dim: sizes[dim]}) if isinstance(dim, str) else str(dim))
            drawn = self.inputs.draw({}, sizes, parts, None)
            made = with_events(drawn, known, along, axes, numbers)
            yield from self.drafts.told(parts, made, sizes, longer=True)

    @property
    def _largest(self) -> int:
        """The largest size that was tested."""
        return max((s for sizes in tried_sizes(self.spec) for s in sizes.values()), default=0)

    def _numbers(self) -> frozenset[int]:
        """Return the numbers that the code, the file and decisions name."""
        return frozenset((*self.numbers, *named_by_decisions(self.watcher.seen, self._largest)))

    def _onwards(self) -> Iterator[Case]:
        """Yield more calls in a row than the manifest asks for."""
        if self.spec.steps is None:
            return
        base = self._of_two_rows()
        steps = onwards(self.spec, self.watcher, base, self._numbers(), self.purse, OWED)
        if steps:
            made = self.drafts.case(("onwards", f"steps={steps}"), base.arrays, base.sizes)
            yield replace(made, steps=steps)
            yield from self._held(base, steps)

    def _held(self, base: Case, most: int) -> Iterator[Case]:
        """Yield as many calls, or as there is enough for, of rows that stay, and of as many that come once.

        Pauses, stalls and steady words are counted over calls, and rows that take turns are never the same
        for long. In between a place comes from one to the next.
        """
        inputs, axes = self.inputs, self.inputs.axes
        if not (inputs.batch & base.sizes.keys() and inputs.grows and self.spec.draws_all):
            return
        for steps, _ in further_steps(self.spec, (*self._numbers(), most - 2), 0.0):
            held = _HELD * steps
            sizes = inputs.sized(base.sizes, 2 * held)
            price = steps * (SIDES + 1), self.purse.ratio(sizes)
            if steps > most or elements(self.spec.inputs, sizes) > LARGEST:
                continue
            with self.purse.least(OWED):
                if not self.purse.takes(*price):
                    continue
            known = domains_at(self.spec, self.watcher, sizes)
            drawn = inputs.draw(known, sizes, ("onwards", "held"), None)
            rows = np.arange(2 * held)
            rows[:held] //= steps
            stay = {n: a.take(rows, axes[n]) if n in axes else a for n, a in drawn.items()}
            case = self.drafts.case(("onwards", "held", f"steps={steps}"), stay, sizes)
            found = steps_answered(self.spec, self.watcher.eager, case, steps)
            if found:
                yield replace(case, steps=found)
            return

    def _of_two_rows(self) -> Case:
        """Return the case that calls in a row begin with: the rows of a batch take turns."""
        base = self.purse.base
        two = {dim: 2 for dim in self.inputs.batch if base.sizes.get(dim) == 1}
        if not two or not self.inputs.grows or not self.spec.draws_all:
            return base
        sizes = {**base.sizes, **two}
        drawn = self.inputs.draw({}, sizes, ("onwards",), None)
        return self.drafts.case(("onwards",), drawn, sizes)

    def _at_sizes(self, name: str, sizes: Sizes, largest: int) -> Iterator[Case]:
        """Yield a case of some sizes, and beyond the ``largest`` tested ones one of equal elements."""
        name, sizes = self._within(name, sizes)
        if not self.purse.affords(sizes, longer=True):
            return
        beyond = self.drafts.kept.known and max(sizes.values()) > max(largest, _ALIKE)
        for way in (None, WAYS.index("all alike")) if beyond else (None,):
            domain, parts = {}, ("sizes", name)
            if way is not None:
                domain, parts = domains_at(self.spec, self.watcher, sizes), ("alike", name)
            if way is not None and not self.purse.affords(sizes, longer=True):
                break
            arrays = self.inputs.draw(domain, sizes, parts, way)
            yield from self.drafts.told(parts, arrays, sizes, longer=True)

    def _ending(self, name: str, sizes: Sizes) -> Iterator[Case]:
        """Yield a case of rows with their largest elements near the end, where narrow types tell least."""
        name, sizes = self._within(name, sizes)
        if not self.purse.affords(sizes, longer=True):
            return
        grown = {dim for dim, size in sizes.items() if size > self.purse.base.sizes[dim]}
        drawn = self.inputs.draw({}, sizes, ("ending", name), None)
        turned = self.inputs.ending(drawn, grown)
        if turned:
            yield from self.drafts.told(("ending", name), {**drawn, **turned}, sizes, longer=True)

    def _within(self, name: str, sizes: Sizes) -> tuple[str, Sizes]:
        """Return sizes and their name, of one row where there is not enough for all."""
        rows = (self.inputs.batch & sizes.keys()) - self.spec.named_dims
        if self.purse.affords(sizes, longer=True) or not sizes.keys() - rows:
            return name, sizes
        sizes = {**sizes, **dict.fromkeys(rows, 1)}
        return sizes_label(sizes), sizes

    def _paths(self) -> Iterator[Case]:
        """Yield numbers of things, as a tree's parents or a graph's edges are, that make one long path."""
        numbers = {name for name, each in self.spec.inputs.items() if each.bounds is not None}
        if not numbers or not all(map(is_drawable, self.spec.inputs.values())):
            return
        for sizes in grown(self.spec, self.purse.base.sizes):
            if self.purse.affords(sizes, longer=True):
                known = {
                    n: each
                    for n, each in domains_at(self.spec, self.watcher, sizes).items()
                    if n in numbers
                }
                arrays = self.inputs.draw(known, sizes, ("path",), IN_ORDER)
                for case in self.drafts.told(
                    ("path", sizes_label(sizes)), arrays, sizes, longer=True
                ):
                    yield case
                    return


def domains_at(spec: ModelSpec, watcher: Watcher, sizes: Sizes) -> dict[str, Domain]:
    """Return what may be drawn for each input at some sizes, with the numbers that were met."""
    constants = (*watcher.constants, *watcher.limits_of_inputs)
    return domains(spec, sizes, watcher.hulls, constants, watcher.masks, watcher.divisors)


def further_steps(
    spec: ModelSpec, numbers: Iterable[int], least: float
) -> Iterator[tuple[int, float]]:
    """Yield how many steps may show more, the most first, and which seconds each may take in any case.

    Two beyond a number that is named, as a buffer of so many places begins anew there; and some times as
    many as the manifest's. None where a tolerance was chosen for those: what is off adds up.
    """
    if spec.steps is None or not spec.by_rounding:
        return
    counts = [(n + 2, least) for n in sorted(set(numbers), reverse=True)]
    counts += [(times * spec.steps.count + 1, 0.0) for times in reversed(LARGER)]
    yield from (each for each in counts if spec.steps.count < each[0] <= MAX_STEPS)


def onwards(
    spec: ModelSpec,
    watcher: Watcher,
    base: Case,
    numbers: Iterable[int],
    purse: Purse,
    least: float,
) -> int:
    """Return how many steps ``base`` is to begin, 0 where no more than the manifest's.

    ``least`` are the seconds that it may take to where a number is named, or something is shown.
    """
    if spec.steps is None or not spec.by_rounding:
        return 0
    with purse.least(least):
        shown = _showing(spec, watcher, base, purse)
    for number, seconds in further_steps(spec, {*numbers, shown}, least):
        with purse.least(seconds):
            if purse.takes(number * (SIDES + 1)):
                found = steps_answered(spec, watcher.eager, base, number)
                return found if found > spec.steps.count else 0
    return 0


def _showing(spec: ModelSpec, watcher: Watcher, base: Case, purse: Purse) -> int:
    """Return the last step at which a decision is on a side that none has shown, 0 where there is none.

    What is carried on may come to a limit after a hundred steps, and none of a few be near it.
    """
    left = {site: {*seen.left(site)} for site, seen in watcher.seen.items() if not site.has_rows}
    last, watch = 0, Watch(watcher)

    def ask(arrays: Arrays) -> Outputs:
        nonlocal watch
        watch = Watch(watcher)
        return watcher.eager.run(arrays, mode=watch)

    for number in islice(steps_of(spec, base, ask), MAX_STEPS):
        for site, seen in watch.seen.items():
            own = left.get(watcher.known_as(site), set())
            if own & seen.sides:
                own -= seen.sides
                last = number
        if not any(left.values()) or not purse.takes(1.0):
            break
    return last
