"""The bodies of If, Loop and Scan, and functions of the file, as parts of one graph.

Faults are of a flat list of nodes: a node, then those of its bodies, then the next one. For a name to
mean one value in all of it, functions are inlined and names of bodies made unique.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto
from onnx.inliner import inline_local_functions


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that a node runs."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and all bodies in it."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def nodes(graph: GraphProto) -> Iterator[tuple[NodeProto, GraphProto]]:
    """Yield every node with the graph that it is in, those of its bodies right behind it."""
    for node in graph.node:
        yield node, graph
        for body in bodies(node):
            yield from nodes(body)


def flattened(model: ModelProto) -> ModelProto:
    """Return a model, which may be the same one, with no functions and no name that means two values."""
    if model.functions:
        model = inline_local_functions(model)
    taken = set(_defined(model.graph))
    for node in model.graph.node:
        for body in bodies(node):
            _rename(body, {}, taken)
    return model


def _defined(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _rename(body: GraphProto, outer: Mapping[str, str], taken: set[str]) -> None:
    """Give the values of a body names that no other graph has; ``outer`` are those given around it."""
    names = dict(outer)
    for name in dict.fromkeys(_defined(body)):
        unique, number = name, 1
        while unique in taken:
            unique, number = f"{name}__{number}", number + 1
        taken.add(unique)
        names[name] = unique
    for named in (*body.input, *body.output, *body.initializer, *body.value_info):
        named.name = names.get(named.name, named.name)
    for node in body.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for each in bodies(node):
            _rename(each, names, taken)
