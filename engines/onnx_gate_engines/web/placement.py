"""Which provider each node runs on: ONNX Runtime Web says so in its verbose log, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

_CPU = "CPUExecutionProvider"
_ALL = re.compile(r"All nodes placed on \[(\w+)\]\. Number of nodes: (\d+)")
_SOME = re.compile(r"Node\(s\) placed on \[(\w+)\]\. Number of nodes: (\d+)")
_NODE = re.compile(r"VerifyEachNodeIsAssignedToAnEp\]   (\S+) \((.*)\)$")
_OF_SIZES = ("Shape", "Size")


@dataclass(frozen=True)
class PlacedNode:
    """A node of the optimised graph; what an optimisation has made has a name of its own."""

    name: str
    op_type: str


@dataclass(frozen=True)
class Placement:
    """``total`` nodes, and those that run on the processor.

    Nodes that compute sizes from sizes are not among them: they have no part in the numbers, and
    ONNX Runtime leaves them there on purpose.
    """

    total: int
    elsewhere: tuple[PlacedNode, ...] = ()


def placement_of(lines: Sequence[str], model: Path) -> Placement | None:
    """Return what the log of a session says of the file ``model``; ``None`` where it says nothing."""
    graph = onnx.load(str(model), load_external_data=False).graph
    in_file = [PlacedNode(node.name, node.op_type) for node in _computing_numbers(graph)]
    total, provider = 0, ""
    on_processor: list[PlacedNode] = []
    for line in lines:
        everything, some, node = _ALL.search(line), _SOME.search(line), _NODE.search(line)
        head = everything or some
        if head is not None:
            provider = head[1]
            total += int(head[2])
            if everything is not None and provider == _CPU:
                on_processor = in_file  # the log names none
        elif node is not None and provider == _CPU:
            on_processor.append(PlacedNode(node[2], node[1]))
    if not total and in_file:
        return None
    sizes = {node.name for node in graph.node} - {node.name for node in in_file}
    return Placement(total, tuple(n for n in on_processor if n.name not in sizes))


def _computing_numbers(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes whose values come from more than shapes and constants."""
    known = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in _OF_SIZES or _all_in(node.input, known):
            known.update(node.output)
        else:
            yield node


def _all_in(inputs: Iterable[str], known: set[str]) -> bool:
    return all(name in known for name in inputs if name)
