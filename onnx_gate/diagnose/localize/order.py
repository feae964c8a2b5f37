"""Two operators of which the graph has the second first: a mask that is added before a score is scaled.

Each of them is right about what it reads, and what comes of the first is no value of PyTorch's. So the
nodes around the faulty one are run in the other order: if that makes a value of PyTorch's that no node of
the graph makes, the order is what is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import FaultyNode, SearchResult, without_value
from onnx_gate.diagnose.localize.search import PLUMBING
from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.diagnose.values import agree
from onnx_gate.graph.graph import Graph, Node


def exchanged(divergence: Divergence, result: SearchResult) -> SearchResult:
    """Return the result with the two nodes that are in the wrong order, where the faulty one is of them."""
    faulty = result.faulty
    if faulty is None or result.missing or result.constant is not None:
        return result
    for first, then in _pairs(divergence.graph, faulty.node):
        divergence.deadline.check()
        made = _made(divergence, result, first, then)
        if made is not None:
            inside = FaultyNode(first, first.outputs[0], without_value(made))
            return dataclasses.replace(result, inside=inside, exchanged=(first, then))
    return result


def _pairs(graph: Graph, node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield a node with the only one that reads it, and those that it alone reads."""
    around = [node, *(graph.producer[n] for n in node.inputs if n in graph.producer)]
    for first in around:
        readers = graph.readers.get(first.outputs[0], [])
        if len(readers) == 1 and first.outputs[0] not in graph.outputs:
            then = readers[0]
            if first.op_type != then.op_type and not PLUMBING & {first.op_type, then.op_type}:
                yield first, then


def _made(
    divergence: Divergence, result: SearchResult, first: Node, then: Node
) -> TracedValue | None:
    """Return the value of PyTorch's that two nodes make in the other order."""
    graph, run = divergence.graph, divergence.runner.run
    between, end = first.outputs[0], then.outputs[0]
    here = run(first, result.values).get(between)
    own = run(then, {**result.values, between: here}).get(end)
    for name in graph.depends_on_input(first):
        read = divergence.runner.value(name, result.values)
        middle = run(then, {**result.values, between: read}).get(end)
        made = run(first, {**result.values, name: middle}).get(between)
        if agree(middle, read) or agree(made, middle):
            continue  # where one of them does nothing it has no place in an order
        for traced in result.trace.find(made):
            if traced.distinctive and traced.depends_on_input and not agree(own, traced.array):
                return traced
    return None
