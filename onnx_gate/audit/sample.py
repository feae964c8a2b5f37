"""In which order the sites of a graph are tried, so that a part of them stands for all.

What is sampled is a fault drawn in steps: its kind, the fault, how deep in the graph, the site;
each step with equal odds. So no kind is left out because another one has more sites, and the share
that is caught estimates how likely the gate is to catch a fault of this distribution. The order is
of the seed alone, and a larger sample begins with the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from onnx_gate.audit.fault import KINDS, Fault, FaultSite
from onnx_gate.audit.graph import FlatGraph

Depth = Literal["first", "middle", "last"]
_DEPTHS: tuple[Depth, ...] = ("first", "middle", "last")
# The normal quantile of a two-sided interval of 95 %.
_Z = 1.959963984540054
T = TypeVar("T")


@dataclass(frozen=True)
class SampledFault:
    """A fault at a site."""

    fault: Fault
    site: FaultSite
    depth: Depth

    @property
    def id(self) -> str:
        """What tells it from all others of the same graph."""
        return f"{self.fault.name}@{self.site.index}.{self.site.operand}x{self.site.size:g}"


def candidates(graph: FlatGraph, faults: Iterable[Fault], seed: int) -> list[SampledFault]:
    """Return every fault at every site, those that stand for the others first."""
    by_kind: dict[str, list[list[SampledFault]]] = {kind: [] for kind in KINDS}
    for fault in faults:
        random = np.random.default_rng((seed, *fault.name.encode()))
        by_depth: dict[Depth, list[SampledFault]] = {depth: [] for depth in _DEPTHS}
        for site in fault.sites(graph):
            depth = _depth(graph, fault, site)
            by_depth[depth].append(SampledFault(fault, site, depth))
        shuffled = [_shuffled(each, random) for each in by_depth.values()]
        by_kind[fault.kind].append(list(_in_turn(_shuffled(shuffled, random))))
    random = np.random.default_rng(seed)
    return list(_in_turn([list(_in_turn(_shuffled(each, random))) for each in by_kind.values()]))


def wilson(caught: int, of: int) -> tuple[float, float]:
    """Return the interval of 95 % for a share (Wilson 1927, score interval)."""
    if not of:
        return 0.0, 1.0
    share, z = caught / of, _Z**2 / of
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(share * (1 - share) * z + z**2 / 4) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)


def _depth(graph: FlatGraph, fault: Fault, site: FaultSite) -> Depth:
    if not fault.operators or not graph.nodes:
        return "first"
    return _DEPTHS[site.index * len(_DEPTHS) // len(graph.nodes)]


def _shuffled(items: Sequence[T], random: np.random.Generator) -> list[T]:
    return [items[int(i)] for i in random.permutation(len(items))]


def _in_turn(lists: Sequence[Sequence[T]]) -> Iterator[T]:
    """Yield the first of each list, then the second of each, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield from (items[place] for items in lists if place < len(items))
