"""A graph: nodes in order, who makes what and who reads it, constants where they lie."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnx_gate.graph.constants import Constants
from onnx_gate.graph.walk import inlined, nodes
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.bodies import bodies

RANDOM = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"),
        "Bernoulli",
    }
)


@dataclass(frozen=True, eq=False)
class Node:
    """A node with the values that it reads and makes; ``within`` is the graph or body that it is in."""

    index: int
    proto: onnx.NodeProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    within: Any = None

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return str(self.proto.op_type)


class Graph:
    """Nodes in topological order, who makes and who reads each value, and what is stored.

    A node reads what its bodies take from outside. ``listed``, of a flattened model: the nodes of
    bodies are nodes of their own, right behind theirs, and in the order of the file.
    """

    def __init__(
        self,
        proto: Any,
        constants: Constants,
        opsets: Iterable[onnx.OperatorSetIdProto],
        ir_version: int,
        outer: Iterable[str] = (),
        *,
        listed: bool = False,
    ) -> None:
        self.proto, self.constants = proto, constants
        self.opsets, self.ir_version = tuple(opsets), ir_version
        self.inputs = tuple(v.name for v in proto.input if v.name not in constants)
        self.outputs = tuple(v.name for v in proto.output)
        every = _listed(proto) if listed else ((*each, proto) for each in _in_order(proto.node))
        self.nodes = tuple(
            Node(i, node, reads, tuple(o for o in node.output if o), within)
            for i, (node, reads, within) in enumerate(every)
        )
        self.producer = {o: node for node in self.nodes for o in node.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outer = frozenset(outer)

    @functools.cached_property
    def fixed(self) -> frozenset[str]:
        """The values that depend on no input of the graph: constants, and what is made of them."""
        fixed: set[str] = set()
        for node in self.nodes:
            if node.op_type not in RANDOM and all(
                name in self.constants or name in fixed for name in node.inputs
            ):
                fixed.update(node.outputs)
        return frozenset(fixed)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is the same for all inputs."""
        return name in self.constants or name in self.fixed

    def depends_on_input(self, node: Node) -> tuple[str, ...]:
        """Return the inputs of a node that depend on the graph's inputs."""
        return tuple(name for name in node.inputs if not self.is_constant(name))

    def ancestors(self, names: Iterable[str]) -> list[Node]:
        """Return the nodes that these values depend on, in topological order."""
        return self.behind(names, lambda node: node.inputs)

    def behind(self, names: Iterable[str], reads: Callable[[Node], Iterable[str]]) -> list[Node]:
        """Return the nodes that make values, in order, by way of what each is said to read."""
        nodes: dict[int, Node] = {}
        pending = list(names)
        while pending:
            node = self.producer.get(pending.pop())
            if node is not None and node.index not in nodes:
                nodes[node.index] = node
                pending.extend(reads(node))
        return [nodes[index] for index in sorted(nodes)]

    def back(self, node: Node, known: Callable[[str], bool]) -> list[Node]:
        """Return a node and those before it, in order, back to values that are ``known``."""

        def unknown(node: Node) -> list[str]:
            return [name for name in self.depends_on_input(node) if not known(name)]

        return self.behind(node.outputs, unknown)

    def bodies(self, node: Node) -> Iterator[tuple[str, Graph]]:
        """Return the subgraphs of a node by the name of their attribute."""
        outer = {*self.inputs, *self.producer, *self.outer}
        for attribute in node.proto.attribute:
            if attribute.HasField("g"):
                own = self.constants.of_body({t.name: t for t in attribute.g.initializer})
                yield (attribute.name, Graph(attribute.g, own, self.opsets, self.ir_version, outer))


def read_graph(
    model: onnx.ModelProto, path: Path, arrays: Mapping[str, Array] | None = None
) -> Graph:
    """Return the main graph of a model that was read from ``path``, its own functions inlined.

    ``arrays`` are the values of initializers that are in no file.
    """
    return as_it_is(inlined(model), path, arrays)


def as_it_is(
    model: onnx.ModelProto, path: Path, arrays: Mapping[str, Array] | None = None
) -> Graph:
    """Return the main graph of a model with its calls of functions."""
    stored = Constants({t.name: t for t in model.graph.initializer}, path.parent, arrays)
    return Graph(model.graph, stored, model.opset_import, model.ir_version)


def _listed(
    graph: onnx.GraphProto,
) -> Iterator[tuple[onnx.NodeProto, tuple[str, ...], onnx.GraphProto]]:
    for node, within in nodes(graph):
        yield node, tuple(dict.fromkeys(name for name in node.input if name)), within


def _in_order(protos: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, tuple[str, ...]]]:
    """Yield nodes and what they read, each after those that it reads from; else as in the file.

    Some tools append what they add, and ONNX Runtime does not mind.
    """
    nodes = [(node, _reads(node)) for node in protos]
    unmade = Counter(o for node, _ in nodes for o in node.output if o)
    waiting: dict[str, list[tuple[onnx.NodeProto, tuple[str, ...]]]] = {}
    for each in nodes:
        ready = [each]
        while ready:
            node, reads = ready.pop()
            missing = next((name for name in reads if unmade[name]), None)
            if missing is not None:
                waiting.setdefault(missing, []).append((node, reads))
                continue
            yield node, reads
            for name in node.output:
                unmade[name] = 0
                ready += reversed(waiting.pop(name, ()))
    yield from (each for rest in waiting.values() for each in rest)


def _reads(node: onnx.NodeProto) -> tuple[str, ...]:
    names = [name for name in node.input if name]
    for graph in bodies(node):
        names += _free(graph)
    return tuple(dict.fromkeys(names))


def _free(graph: onnx.GraphProto) -> list[str]:
    """Return the names that a subgraph takes from outside."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    names = []
    for node in graph.node:
        names += [name for name in _reads(node) if name not in own]
        own.update(node.output)
    return names + [v.name for v in graph.output if v.name not in own]
