"""Sizes beyond the tested ones at which something may change: of named numbers, remainders and types."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from onnx_gate.graph.limits import FEW_APART, LOOPED
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.roles import Role, batches, roles
from onnx_gate.verify.export.exported import LARGEST_SIZE
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label, tried_sizes
from onnx_gate.verify.reach.sites import DecisionSite, Seen

# What is cut into parts is so by these: all remainders of them are gone to.
FEW = range(2, FEW_APART + 1)
# And networks halve what they are given up to five times. Of larger divisors those remainders are gone
# to at which a part is full, begins or is half: what is padded or rounded tells these from others.
DIVISORS = (*FEW, 16, 32)
# No more sizes than that for each dimension, those that leave most first: beside the default sizes so many
# leave all remainders of these divisors, and what is named has what they leave.
MOST = 12
# One more than so many times the largest size.
LARGER = (2, 4)


def named_by_decisions(seen: Mapping[DecisionSite, Seen], largest: int) -> Iterator[int]:
    """Yield the limits of decisions about whole numbers of which one side was not seen.

    And where less was reached than the ``largest`` size that was tried, as of every sixteenth place, the
    size at which as many times as much would be.
    """
    for site, each in seen.items():
        # Numbers of things, and what climbs with each step.
        if (each.whole or site.operator in LOOPED) and site.limit is not None and each.left(site):
            number = abs(site.limit)
            if site.kind in ("limit", "equality", "rows") and 2 < number <= LARGEST_SIZE:
                yield math.floor(number)
                reached = site.limit + each.high
                if site.kind == "limit" and 0 < reached < min(number, largest):
                    yield min(math.ceil(number * largest / reached), LARGEST_SIZE)


def further_sizes(
    spec: ModelSpec, numbers: Iterable[int], base: Sizes
) -> Iterator[tuple[str, dict[str, int], bool]]:
    """Yield more sizes, each under a name: around each number, which is told, and of other remainders.

    And twice as long as a number that no tested size is beyond: what is held at a distance of so many
    places (a bias by it) is off by little next to it, and shows far beyond.
    A dimension that the manifest gives sizes has no others.
    """
    kinds = roles(spec.inputs)
    free = free_dimensions(spec, base)
    if not free:
        return
    known = [{**base, **sizes} for sizes in tried_sizes(spec)]
    least = {dim: _least(spec, dim) for dim in free}
    rows: list[Sizes] = []
    long = long_dimensions(spec, free)
    ordered = sorted(set(numbers))
    # Each dimension has its turn before the next number: what pays for all may be spent by one.
    few = {d: least[d] for d in free if kinds.get(d) == "batch" or least[d] > 1}
    most = {dim: max((sizes[dim] for sizes in known if dim in sizes), default=1) for dim in long}
    rows += [
        {d: size for d, size in few.items() if d != dim} | {dim: times * n + more}
        for times, more in ((1, 2), (1, 0), (1, 1), (1, -1), (2, 1))
        for n in reversed(ordered)
        for dim in long
        if times * n + more <= LARGEST_SIZE and (times == 1 or n > most[dim])
    ]
    rows += _areas(ordered, long, few, known)
    named = len(rows)
    rows += _of_remainders(kinds, least, ordered, known)
    # What overflows, or ends after so many steps, names no size.
    for times in LARGER:
        rows += [
            {d: least[d] for d in free if d != dim} | {dim: times * most[dim] + 1} for dim in long
        ]
    for place, row in enumerate(rows):
        sizes = {**base, **row}
        if sizes not in known and min(row.values()) >= 1:
            known.append(sizes)
            yield sizes_label(row), sizes, place < named


def distant_sizes(
    spec: ModelSpec, lengths: Iterable[int], base: Sizes
) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield sizes of which a dimension, or all sides together, come to each length, under a name.

    Whole batches of them, as it is ordinary draws that are to be beyond the end of a type.
    """
    long = long_dimensions(spec, free_dimensions(spec, base))
    for length in sorted(lengths) if long else ():
        rows: list[Sizes] = [{dim: length} for dim in long]
        if len(long) > 1:
            side = math.ceil(length ** (1 / len(long)))
            rows.append(dict.fromkeys(long, side))
        for row in rows:
            yield sizes_label(row), {**base, **row}


def _of_remainders(
    kinds: Mapping[str, Role],
    least: Sizes,
    numbers: Sequence[int],
    known: Sequence[Sizes],
) -> Iterator[Sizes]:
    """Yield sizes of all dimensions that leave remainders which no known ones do.

    Those of one kind take theirs in turn, so that they differ, and who has no more is small.
    """
    found: dict[str, list[int]] = {}
    for dim in least:
        alike = [each for each in least if kinds.get(each) == kinds.get(dim)]
        divisors = FEW if kinds.get(dim) == "batch" else (*DIVISORS, *numbers)
        sizes = [*leaving({each[dim] for each in known}, least[dim], divisors)]
        first = alike.index(dim) * len(sizes) // len(alike)
        found[dim] = [*sizes[first:], *sizes[:first]]
    for row in range(max(map(len, found.values()))):
        yield {dim: [*sizes, *[least[dim]] * MOST][row] for dim, sizes in found.items()}


def _areas(
    numbers: Sequence[int], long: Sequence[str], few: Sizes, known: Sequence[Sizes]
) -> Iterator[Sizes]:
    """Yield sizes whose product, as an image's of its sides, is beyond a number that none was beyond."""
    if len(long) < 2:
        return
    most = max((math.prod(sizes.get(dim, 1) for dim in long) for sizes in known), default=1)
    for number in numbers:
        if number >= most:
            side = math.floor(number ** (1 / len(long))) + 1
            yield {**few, **dict.fromkeys(long, side)}


def grown(spec: ModelSpec, base: Sizes) -> Iterator[Sizes]:
    """Yield sizes at which all that may be long is far longer than it was tried, the longest first."""
    free = free_dimensions(spec, base)
    known = [{**base, **sizes} for sizes in tried_sizes(spec)]
    for times in reversed(LARGER) if free else ():
        yield {
            **base,
            **{
                dim: times * max(sizes[dim] for sizes in known) + 1
                for dim in long_dimensions(spec, free)
            },
        }


def free_dimensions(spec: ModelSpec, base: Sizes) -> list[str]:
    """Return the dimensions that the manifest gives no sizes."""
    return [dim for dim in spec.dims if dim in base and dim not in spec.named_dims]


def long_dimensions(spec: ModelSpec, free: Sequence[str]) -> Sequence[str]:
    """Return the dimensions that are no batch's, or all where each is one."""
    kinds = roles(spec.inputs)
    return [dim for dim in free if kinds.get(dim) != "batch"] or free


def given_lengths(spec: ModelSpec, free: Sequence[str]) -> dict[str | int, int]:
    """Return the longest that each dimension is whose sizes are given, but for those of a batch."""
    dims = {dim for each in spec.inputs.values() for dim in each.shape} - {*free}
    kept = sorted(dims - batches(spec.inputs), key=str)
    return {dim: dim if isinstance(dim, int) else max(spec.dims[dim]) for dim in kept}


def sizes_along(spec: ModelSpec, free: Sequence[str], dim: str, size: int) -> dict[str, int]:
    """Return the sizes of all that are free: one has some size, the others are as small as can be."""
    return {each: size if each == dim else _least(spec, each) for each in free}


def _least(spec: ModelSpec, dim: str) -> int:
    """Return the smallest tested size that is no border case."""
    sizes: Sequence[int] = spec.dims[dim]
    return min((s for s in sizes if s > 2), default=1) if min(sizes, default=1) > 2 else 1


def leaving(tested: Collection[int], least: int, divisors: Iterable[int]) -> Iterator[int]:
    """Yield as few sizes as possible that leave what no tested one does, none smaller than the ``least``.

    Divisors that are named count as far as the largest tested size has two of each.
    """
    of = {d for d in divisors if d in DIVISORS or 1 < d <= max(tested) // 2}
    wanted = {(d, r) for d in of for r in _remainders(d)}
    wanted -= {(d, size % d) for size in tested if size >= least for d in of}
    # Of twice the largest divisor there is some choice for the others.
    among = range(least, least + 2 * max(of, default=0))
    for _ in range(MOST):
        if not wanted:
            return
        size = max(among, key=lambda s: sum((d, s % d) in wanted for d in of))
        wanted -= {(d, size % d) for d in of}
        yield size


def _remainders(divisor: int) -> Collection[int]:
    half = divisor // 2
    few = {0, 1, half - 1, half, half + 1, divisor - 1}
    return range(divisor) if divisor in FEW else few
