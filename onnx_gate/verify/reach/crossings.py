"""Where what a module decides changes along a coordinate: its domain, cut again and again.

A quotient by 146,097 in place of 146,096 is another one at a few numbers of millions, all of them next to
where it changes, and the more of them the larger it is. No formula is inverted: one element of a row takes
many values in one batch, all else held, which show between which two of them something changes, and the
next batch lies between these, until they are neighbours or it is met exactly. Where whole numbers only
come near, as a day does to a second, another coordinate goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from onnx_gate.graph.arithmetic import MOST_LIMITS
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.draw import Float64, numpy_dtype
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.gauge import Reading, read
from onnx_gate.verify.reach.stack import Stack
from onnx_gate.verify.reference.noise import few_bits

_Places = npt.NDArray[np.int64]

# Of one place, where all are too many: so many changes from each end on, and at its largest quotients. The
# last show the smallest fault of a divisor most; four of them meet it however a slope of four lies.
_ENDS, _TOP = 2, 4
# Beside these so many of all rows, spread evenly: faults of a few steps are at no end.
_SHARE = 1 / 16
# So many parts at least is what lies between two values cut into.
_PARTS = 8
# 2,000 rows find one number of 2**63 in so many rounds, and 250 at once each a float32 in a wide domain.
_ROUNDS = 12
# So many units of a domain's end away, rounding in a few operations does not decide, nor does it where
# the judge moves it by ten times as much.
_UNITS = 64
# All of the elements of an input, at once.
ALL = -1
# A line is looked at in so many places at least, as sixteen of a domain show what changes once.
GRID = 16
# So many places next to limits are gone on from, as of a list of limits each.
_NEAR = MOST_LIMITS


@dataclass(frozen=True)
class Lines:
    """Rows of which one element of an input, or ``ALL`` of them, is moved: of each line a base and which.

    ``bases`` have the rows' axis in front, where inputs have rows.
    """

    bases: Mapping[str, Array]
    name: str
    base: _Places
    column: _Places

    def __len__(self) -> int:
        return len(self.base)

    def at(self, line: _Places, values: Array, stack: Stack) -> dict[str, Array]:
        """Return a row for each value on its line."""
        base, column = self.base[line], self.column[line]
        rows = stack.at(self.bases, base)
        own = rows[self.name]
        flat, one = own.reshape(len(own), -1), np.flatnonzero(column != ALL)
        values = values.astype(own.dtype)
        flat[column == ALL] = values[column == ALL, None]
        flat[one, column[one]] = values[one]
        return rows

    def grid(self, domain: Domain, rows: int) -> tuple[_Places, Array]:
        """Return so many values, and on which line each is: its base's own among them.

        On lines of ``ALL`` elements half of them, where there are others.
        """
        begin, end = (domain.low, domain.high) if domain.is_float else domain.ends
        alike = self.column == ALL
        shares = np.where(alike, (~alike).sum(), alike.sum())
        if not alike.any() or alike.all():
            shares = np.ones(len(self))
        counts = np.maximum(2, (rows * shares / shares.sum()).astype(np.int64))
        parts = []
        for base, column, count in zip(self.base, self.column, counts, strict=True):
            values = spread(domain, begin, end, int(count))
            if column != ALL:
                own = self.bases[self.name][base].reshape(-1)[column].astype(values.dtype)
                values[np.abs(values - own).argmin()] = own
            parts.append(values)
        line = np.repeat(np.arange(len(parts)), [len(each) for each in parts])
        return line[:rows], np.concatenate(parts)[:rows]


@dataclass(frozen=True)
class _Gaps:
    """Neighbours on lines between which something changes, and what is shown at both.

    ``plain``: it is computed to the bit there.
    """

    line: _Places
    low: Array
    high: Array
    plain: npt.NDArray[np.bool_]
    below: Float64
    above: Float64

    def __len__(self) -> int:
        return len(self.line)

    def at(self, chosen: npt.NDArray[np.bool_]) -> _Gaps:
        """Return some of them."""
        return _Gaps(*(getattr(self, each)[chosen] for each in self.__dataclass_fields__))

    def beside(self, other: _Gaps) -> _Gaps:
        """Return them and others."""
        pairs = ((getattr(self, n), getattr(other, n)) for n in self.__dataclass_fields__)
        return _Gaps(*map(np.concatenate, pairs))


@dataclass(frozen=True)
class Crossings:
    """The values on lines between which something changes: rows, and which of what is decided they show.

    The ``even`` ones have few bits, so that what is computed of them can be exact; in one tensor with
    ``others`` nobody could tell. ``met`` are the places, of a pass, that are exactly at a limit somewhere;
    ``missed`` has of others two rows that are next to it.
    """

    even: Mapping[str, Array]
    others: Mapping[str, Array]
    met: frozenset[int]
    missed: Mapping[int, tuple[int, int]]
    lines: Lines
    gaps: _Gaps

    def near(self, met: Collection[int], stack: Stack) -> dict[str, Array] | None:
        """Return rows next to limits that are not ``met``, to go on from; ``None`` where there are none."""
        left = [ends for place, ends in self.missed.items() if place not in met]
        found = dict.fromkeys(at for each in zip(*left, strict=True) for at in each)
        chosen = np.array(list(found)[:_NEAR], np.int64)
        if not len(chosen):
            return None
        line = np.repeat(self.gaps.line[chosen], 2)
        ends = np.stack((self.gaps.low[chosen], self.gaps.high[chosen]), axis=1)
        return self.lines.at(line, ends.reshape(-1), stack)


def crossings(
    eager: Eager,
    lines: Lines,
    domain: Domain,
    rows: int,
    stack: Stack,
    pays: Callable[[], bool],
    *,
    every: bool = False,
) -> Crossings | None:
    """Return where on lines something changes, as near as can be; ``None`` where nothing does.

    ``stack`` gives rows to the module; ``pays`` is asked before each batch of so many ``rows``. With
    ``every``, changes are those of comparisons alone, of whatever is made of an input.
    """
    part, values = lines.grid(domain, rows)
    line = np.arange(len(lines))
    gaps: _Gaps | None = None
    done: list[_Gaps] = []
    exact: dict[tuple[int, ...], tuple[int, float]] = {}
    limits = np.zeros(0, np.bool_)
    for _ in range(_ROUNDS):
        if not len(values) or not pays():
            break
        # Every batch is as large as the first, for what follows from its size.
        size = len(values) if stack.passes else rows
        batch = lines.at(np.resize(line[part], size), np.resize(values, size), stack)
        found = read(eager, batch, stack, steps=domain.is_float, every=every)
        if found is None or (gaps is not None and found.sides.shape[1] != gaps.below.shape[1]):
            break
        limits = found.limits
        _meet(exact, lines, line[part], values, found)
        most = max(1, rows // _PARTS - sum(map(len, done)))
        gaps = _changed(gaps, line, part, values, found, most)
        inside = list(_inside(gaps, domain, max(_PARTS, rows // max(1, len(gaps))) - 1))
        wide = np.array([len(each) > 0 for each in inside], np.bool_)
        done.append(gaps.at(~wide))
        gaps = gaps.at(wide)
        inside = [each for each in inside if len(each)]
        line = gaps.line
        part = np.repeat(np.arange(len(inside)), [len(each) for each in inside])[:rows]
        values = np.concatenate([values[:0], *inside])[:rows]
    if gaps is None:
        return None
    for each in done:
        gaps = gaps.beside(each)
    if not len(gaps):
        return None
    met = frozenset(key[0] for key in exact if limits[key[0]])
    even, others = _rows(lines, gaps, _few(exact, rows), domain, stack)
    return Crossings(even, others, met, _missed(gaps, limits, met, domain), lines, gaps)


def _meet(
    exact: dict[tuple[int, ...], tuple[int, float]],
    lines: Lines,
    line: _Places,
    values: Array,
    found: Reading,
) -> None:
    """Note what meets a limit exactly for each base, and a step for the first and the last, unless known.

    What comes first has the fewest bits of what is as near.
    """
    place, at = np.nonzero((found.sides[: len(values)] % 2 == 0).T)
    limit, base = found.limits[place], lines.base[line[at]]
    keys = np.stack((place, np.where(limit, base, found.sides[at, place]).astype(np.int64)), axis=1)
    for turn, way in enumerate((slice(None), slice(None, None, -1))):
        few, first = np.unique(keys[way], axis=0, return_index=True)
        for key, row in zip(few.tolist(), at[way][first].tolist(), strict=True):
            if not turn or not found.limits[key[0]]:
                exact.setdefault((*key, turn), (int(line[row]), values[row]))


def _few(exact: dict[tuple[int, ...], tuple[int, float]], rows: int) -> list[tuple[int, float]]:
    """Return no more of what is met exactly than a part of all rows: each place, and others evenly."""
    once = {key[0]: exact[key] for key in reversed(exact)}
    chosen, rest = dict.fromkeys(once.values()), list(dict.fromkeys(exact.values()))
    left = min(len(rest), max(0, rows // _PARTS - len(chosen)))
    chosen |= dict.fromkeys(rest[at] for at in np.linspace(0, len(rest) - 1, left).astype(np.int64))
    return list(chosen)


def _missed(
    gaps: _Gaps, limits: npt.NDArray[np.bool_], met: Collection[int], domain: Domain
) -> dict[int, tuple[int, int]]:
    """Return of limits that are not met the first and the last of the whole numbers next to them."""
    missed: dict[int, tuple[int, int]] = {}
    if not domain.is_float:
        apart = (gaps.below * gaps.above == -1) & (gaps.high - gaps.low == 1)[:, None]
        for place in map(int, np.flatnonzero(apart.any(axis=0) & limits)):
            if place not in met:
                at = np.flatnonzero(apart[:, place])
                missed[place] = int(at[0]), int(at[-1])
    return missed


def _rows(
    lines: Lines,
    gaps: _Gaps,
    exact: Sequence[tuple[int, float]],
    domain: Domain,
    stack: Stack,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the rows that are exactly there, at both ends of gaps and, unless they are passes, beyond.

    Where rounding may decide, an end is one only if it is even.
    """
    begin, end = (domain.low, domain.high) if domain.is_float else domain.ends
    least, count = _least(domain), len(gaps)
    ends = [gaps.low, gaps.high, *([] if stack.passes else [gaps.low - least, gaps.high + least])]
    values = _on(domain, np.clip(np.concatenate(ends), begin, end))
    values = np.concatenate([np.array([each for _, each in exact], values.dtype), values])
    line = np.concatenate(
        [np.array([at for at, _ in exact], np.int64), np.tile(gaps.line, len(ends))]
    )
    first = np.unique(np.stack((line.astype(values.dtype), values)), axis=1, return_index=True)[1]
    first.sort()
    rows = lines.at(line[first], values[first], stack)
    even = _are_even(rows, stack, len(first))
    beyond = np.repeat([False, False, True, True], count)[: count * len(ends)]
    decided = np.tile(gaps.plain, len(ends)) | beyond | stack.passes
    decided = np.concatenate([np.zeros(len(exact), np.bool_), decided])
    both = (np.flatnonzero(each) for each in (even, decided[first] & ~even))
    few, rest = (stack.at(rows, each) for each in both)
    return few, rest


def _are_even(rows: Mapping[str, Array], stack: Stack, count: int) -> npt.NDArray[np.bool_]:
    """Return which rows have few bits throughout."""
    even = np.ones(count, np.bool_)
    for name in stack.axes:
        tensor = to_tensor(rows[name])
        if tensor.is_floating_point() and tensor.numel():
            even &= few_bits(tensor).reshape(count, -1).all(dim=1).numpy()
    return even


def _changed(
    gaps: _Gaps | None, line: _Places, part: _Places, values: Array, found: Reading, most: int
) -> _Gaps:
    """Return the neighbours, in each part of a line, between which something changes."""
    sides = found.sides[: len(values)]
    if gaps is not None:
        number = np.arange(len(gaps))
        part = np.concatenate((part, number, number))
        values = np.concatenate((values, gaps.low, gaps.high))
        sides = np.concatenate((sides, gaps.below, gaps.above))
    order = np.lexsort((values, part))
    part, values, sides = part[order], values[order], sides[order]
    changed = (sides[1:] != sides[:-1]) & (part[1:] == part[:-1])[:, None]
    at = _chosen(changed, sides, found.limits, most)
    plain = (changed[at] & found.plain).any(axis=1)
    return _Gaps(line[part[at]], values[at], values[at + 1], plain, sides[at], sides[at + 1])


def _chosen(
    changed: npt.NDArray[np.bool_], sides: Float64, limits: npt.NDArray[np.bool_], most: int
) -> _Places:
    """Return the rows after which something changes: all, or of each place at both ends and the largest."""
    every = np.flatnonzero(changed.any(axis=1))
    if len(every) <= most:
        return every
    ranked: list[list[int]] = []
    for place in np.flatnonzero(changed.any(axis=0)):
        at = np.flatnonzero(changed[:, place])
        top = at[:0]
        if not limits[place]:
            size = np.maximum(np.abs(sides[at, place]), np.abs(sides[at + 1, place]))
            top = at[np.argsort(size, kind="stable")[::-1][:_TOP]]
        ranked.append([*top, *at[-_ENDS:][::-1], *at[:_ENDS]])
    turns = (each[rank] for rank in range(_TOP + 2 * _ENDS) for each in ranked if rank < len(each))
    chosen = list(dict.fromkeys(map(int, turns)))[:most]
    spread = np.linspace(0, len(every) - 1, max(0, int(most * _PARTS * _SHARE) - len(chosen)))
    chosen += map(int, every[spread.astype(np.int64)])
    return np.unique(np.array(chosen, np.int64))


def _inside(gaps: _Gaps, domain: Domain, parts: int) -> Iterator[Array]:
    """Yield values within each gap, none where there is none that could tell more."""
    least = _least(domain)
    for low, high, plain in zip(gaps.low, gaps.high, gaps.plain, strict=True):
        inside = spread(domain, low, high, parts + 2)
        wide = plain or high - low > least
        yield inside[(inside > low) & (inside < high)] if wide else inside[:0]


def spread(domain: Domain, low: float, high: float, count: int) -> Array:
    """Return so many values from one to another, each once, of floats those of few bits."""
    if not domain.is_float:
        # As the offsets from an end, large numbers are next to each other, too.
        offsets = np.linspace(0.0, int(high) - int(low), count).astype(np.int64)
        return np.unique(np.minimum(offsets, int(high) - int(low)) + int(low))
    apart = (high - low) / (count - 1)
    step = 2.0 ** np.ceil(np.log2(apart)) if apart > 0 and np.isfinite(apart) else 0.0
    if not step or max(abs(low), abs(high)) / step > 2**52:
        return np.unique(_on(domain, np.linspace(low, high, count)))
    # All that have no more bits: what is computed of few is exact, as a sum is that meets a limit.
    within = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return np.unique(_on(domain, np.concatenate(([low], within, [high]))))


def _least(domain: Domain) -> float:
    """Return how near two values are that are next to each other."""
    if not domain.is_float:
        return 1
    eps = float(torch.finfo(getattr(torch, domain.spec.dtype)).eps)
    return _UNITS * eps * max(abs(domain.low), abs(domain.high))


def _on(domain: Domain, values: Array) -> Array:
    """Return the nearest values that the input's type can hold."""
    if not domain.is_float:
        return values
    return values.astype(numpy_dtype(domain.spec.dtype)).astype(np.float64)
