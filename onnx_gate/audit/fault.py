"""A fault of the catalogue, and a site: where in one graph it is, and how large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import onnx

from onnx_gate.audit.edit import CHANGED, Edit
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_attribute, with_input
from onnx_gate.graph.walk import attribute
from onnx_gate.runtimes.base import Array

Kind = Literal[
    "weights", "precision", "operators", "indices", "wiring", "shapes", "limits", "inputs"
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class FaultSite:
    """``index`` is a node's in topological order, or an input's for a fault of inputs.

    ``operand`` is what of it is wrong, ``size`` how much.
    """

    index: int
    operand: int
    size: float


Edits = Callable[[FlatGraph, FaultSite, np.random.Generator], Edit]


@dataclass(frozen=True)
class Seeding:
    """How something goes wrong.

    ``operands`` yields what of a node (or an input) could be wrong, without reading weights, and
    ``edit`` makes it wrong: both are pure.
    """

    operands: Callable[[FlatGraph, Any], Iterable[int]]
    edit: Edits


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong between a module and what is deployed, as ``faults.yml`` says it."""

    name: str
    kind: Kind
    words: str
    source: str
    seeding: Seeding
    operators: tuple[str, ...]
    sizes: tuple[float, ...]
    rounds: bool = False

    def sites(self, graph: FlatGraph) -> Iterator[FaultSite]:
        """Yield every place of a graph at which this can happen, in each of its sizes."""
        asked: list[tuple[int, Any]] = list(enumerate(graph.fed))
        if self.operators:
            asked = [(n.index, n.proto) for n in graph.nodes if n.op_type in self.operators]
        for index, each in asked:
            for operand in self.seeding.operands(graph, each):
                for size in self.sizes:
                    yield FaultSite(index, operand, size)

    def seed(self, graph: FlatGraph, site: FaultSite, seed: int) -> Edit:
        """Return the change; of equal arguments it is the same on every machine."""
        key = (seed, site.index, site.operand, *self.name.encode())
        return self.seeding.edit(graph, site, np.random.default_rng(key))


def whole(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """A node can be wrong in one way."""
    return (0,)


def replaced(graph: FlatGraph, site: FaultSite, array: Array, words: str) -> Edit:
    """Return the change of one operand of a node to another constant."""
    node = graph.nodes[site.index].proto
    old = graph.array(node.input[site.operand])
    new = np.ascontiguousarray(array, old.dtype).reshape(array.shape)
    name = f"{node.input[site.operand]}{CHANGED}"
    return Edit(
        words,
        nodes={site.index: (with_input(node, site.operand, name),)},
        tensors={name: new},
        same=new.shape == old.shape and bool(np.array_equal(_bits(new), _bits(old))),
    )


def _bits(array: Array) -> Array:
    """Return the elements as integers: equal ones are NaN as well, and compared in less time."""
    return array.reshape(-1).view(f"u{array.dtype.itemsize}")


def in_place(site: FaultSite, node: onnx.NodeProto, words: str) -> Edit:
    """Return the change of one node to another."""
    return Edit(words, nodes={site.index: (node,)})


def exchanged_attribute(
    words: str, name: str, values: dict[object, object], default: object
) -> Edits:
    """Return an edit that exchanges the value of an attribute for another."""

    def edit(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
        node = graph.nodes[site.index].proto
        old = attribute(node, name, default)
        new = values[old] if old in values else values[None]
        return in_place(site, with_attribute(node, name, new), words.format(old=old, new=new))

    return edit
