"""Rows beside one that shows what is rare: rules of several conditions are wrong where these meet.

A rule of three conditions that hold together in one row of a thousand is seen on both sides, and still
nothing has come near to any of its limits while the two others hold. So the row that has shown it is
moved, one element at a time and all else as it is: integers of small domains to each of their values, and
others to both sides of whatever a comparison makes of them. Where two conditions have never met, a row in
which one of them holds is moved until they do. Two integers of small domains are moved together as well:
a day of a year may be one that neither of them shows alone. And what meets at one place of a sequence is
moved to each, as its first and last have neighbours on one side only.

It costs ten batches of ``ROWS`` for an element, and one for integers of small domains. Elements come in an
order of which every beginning is spread over an input, so that what can be paid for stands for all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.crossings import Lines, crossings
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.sites import MOST_ROWS, DecisionSite
from onnx_gate.verify.reach.stack import Stack

# So many rows follow eight changes at a time.
ROWS = 64
# And so many passes two.
PASSES = 16
# Of a long input some elements stand for all, as rules are of few: the squares of a board, each.
COLUMNS = 64
# Of these so many are moved together with others.
_PAIRED = 8
# So many values of two integers together are one case.
_MOST_PAIRS = 4 * MOST_ROWS
# A day has 24 hours and an hour 60 minutes: of so many parts each is gone to in seven days on either side,
# of more in one.
_TURNS, _TIMES = 64, 7
# What conditions are together where each of them decides alone.
_TOGETHER = frozenset(("both", "neither"))


def meeting(
    met: Mapping[tuple[DecisionSite, str], Mapping[str, Array]],
    own: Mapping[str, Array],
    known: Collection[str],
    stack: Stack,
) -> Iterator[tuple[tuple[DecisionSite, str], Mapping[str, Array]]]:
    """Yield the rows in which conditions have ``met``, of all the last first, those like one's ``own``."""
    for (site, side), row in met_alike(met, own, known, stack):
        if side in _TOGETHER or (site, site.sides[0]) not in met:
            yield (site, side), row


def met_alike(
    met: Mapping[tuple[DecisionSite, str], Mapping[str, Array]],
    own: Mapping[str, Array],
    known: Collection[str],
    stack: Stack,
) -> Iterator[tuple[tuple[DecisionSite, str], Mapping[str, Array]]]:
    """Yield the rows that are like one's ``own``, those that show one condition alone as well."""
    for key, given in [*met.items()][::-1]:
        if given.keys() != own.keys():
            continue
        row = stack.first(given)
        alike = (row[name].shape == array.shape for name, array in own.items())
        finite = (np.isfinite(row[name].astype(np.float64)).all() for name in known)
        if all(alike) and all(finite):
            yield key, row


def around(
    eager: Eager,
    row: Mapping[str, Array],
    known: Mapping[str, Domain],
    stack: Stack,
    pays: Callable[[], bool],
) -> Mapping[str, Array]:
    """Return neighbours of a ``row``, of which each input of the ``stack`` has one.

    Other inputs are as they are. ``pays`` is asked before each batch; without neighbours there are none.
    """
    return _together(row, stack, list(_moved(eager, row, known, stack, pays)))


def pairs_around(
    row: Mapping[str, Array], known: Mapping[str, Domain], stack: Stack
) -> Mapping[str, Array]:
    """Return a batch in which every two integers of small domains have all of their values together."""
    small = [
        (name, column, np.arange(domain.ends[0], domain.ends[1] + 1))
        for name, domain in known.items()
        if domain.is_small
        for column in columns_of(row[name])[:_PAIRED]
    ]
    made, left = [], _MOST_PAIRS
    for (one, at, values), (other, there, others) in itertools.combinations(small, 2):
        if values.size * others.size <= left:
            left -= values.size * others.size
            first, second = (each.reshape(-1) for each in np.meshgrid(values, others))
            arrays = _with(row, stack, one, at, first)
            made.append(_with(arrays, stack, other, there, second))
    return _together(row, stack, made)


def rolled_around(
    row: Mapping[str, Array], known: Collection[str], stack: Stack
) -> Mapping[str, Array]:
    """Return a batch in which what a row has stands at other places, round and round: at both ends, too."""
    return _in_order(row, known, stack, of=None)


def in_turns_around(
    rows: Sequence[Mapping[str, Array]], known: Collection[str], stack: Stack
) -> Mapping[str, Array]:
    """Return a batch in which two or three of what each row has follow each other again and again.

    What comes back after something else, a word after a pause, comes nowhere among what is drawn.
    """
    return stack.joined([_in_order(row, known, stack, of) for row in rows for of in (2, 3)])


def _in_order(
    row: Mapping[str, Array], known: Collection[str], stack: Stack, of: int | None
) -> Mapping[str, Array]:
    """Return a batch of a row and its lines from each place on, ``of`` so many again and again."""
    length = max((row[name].shape[1] for name in known if row[name].ndim > 1), default=0)
    alike = [name for name in known if row[name].ndim > 1 and row[name].shape[1] == length]
    shifts = columns_of(np.arange(length)) if length else ()
    order = np.arange(length) % (of or length) if length else np.arange(0)
    orders = ((order - each) % length for each in shifts)
    rolled = ({name: row[name].take(each, axis=1) for name in alike} for each in orders)
    return _together(row, stack, [{**row, **each} for each in rolled])


def stepped_around(
    row: Mapping[str, Array], known: Mapping[str, Domain], stack: Stack, numbers: Collection[int]
) -> Mapping[str, Array]:
    """Return a batch in which integers of wide domains are moved by what the code divides by, and parts.

    Of days by weeks of them and hours, or by each minute: several conditions about one number of
    seconds meet on one day, at one hour.
    """
    made, left = [], MOST_ROWS
    for name, domain in known.items():
        if domain.is_float or domain.is_small:
            continue
        steps = [*_steps([n for n in numbers if n <= (domain.high - domain.low) / 2])]
        for column in columns_of(row[name])[:_PAIRED]:
            own, (low, high) = int(row[name].reshape(-1)[column]), domain.ends
            for each in steps:
                values = np.unique(each + own)
                values = values[(values >= low) & (values <= high)]
                if values.size <= left:
                    left -= values.size
                    made.append(_with(row, stack, name, column, values))
    return _together(row, stack, made)


def _steps(numbers: Collection[int]) -> Iterator[Array]:
    """Yield steps by multiples of a number and, within each, of a part of it: for the largest first."""
    for whole in sorted(numbers, reverse=True):
        parts = [part for part in (1, *sorted(numbers)) if part < whole and whole % part == 0]
        for most, times in ((_TURNS, _TIMES), (MOST_ROWS // 2 - 1, 0)):
            part = next((part for part in parts if whole // part <= most), None)
            if part is not None:
                by_whole = whole * np.arange(-times, times + 1)[:, None]
                within = part * np.arange(-(whole // part), whole // part + 1)
                yield (by_whole + within).reshape(-1)


def _together(
    row: Mapping[str, Array], stack: Stack, parts: Sequence[Mapping[str, Array]]
) -> Mapping[str, Array]:
    # Of no parts there are no rows.
    return stack.joined((stack.at(row, slice(0)), *parts))


def _with(
    row: Mapping[str, Array], stack: Stack, name: str, column: int, values: Array
) -> dict[str, Array]:
    """Return inputs with a row for each value of one element, all else as it is."""
    arrays = {
        n: np.repeat(a, len(values) // len(a), axis=0) if n in stack.axes else a
        for n, a in row.items()
    }
    moved = arrays[name].reshape(len(values), -1)
    moved[:, column] = values.astype(moved.dtype)
    return arrays


def columns_of(array: Array) -> Array:
    """Return places of an array, of which each beginning is spread: as digits turned round follow."""
    bits = COLUMNS.bit_length() - 1
    turned = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(COLUMNS)]
    spread = np.array(turned) * max(array.size, COLUMNS) // COLUMNS
    return spread[spread < array.size]


def _moved(
    eager: Eager,
    row: Mapping[str, Array],
    known: Mapping[str, Domain],
    stack: Stack,
    pays: Callable[[], bool],
) -> Iterator[Mapping[str, Array]]:
    places = {name: columns_of(row[name]) for name in known}
    for rank in range(COLUMNS):
        for name in (name for name, columns in places.items() if rank < len(columns)):
            domain, column = known[name], int(places[name][rank])
            # Where each row is a case of its own, those are enough beside which something changes.
            if stack.passes or not domain.is_small:
                rows = PASSES if stack.passes else ROWS
                line = Lines(row, name, np.zeros(1, np.int64), np.array([column]))
                found = crossings(eager, line, domain, rows, stack, pays, every=True)
                if found is not None:
                    yield from (found.even, found.others)
            elif pays():
                values = np.arange(domain.ends[0], domain.ends[1] + 1)
                yield _with(row, stack, name, column, values)
            else:
                return
