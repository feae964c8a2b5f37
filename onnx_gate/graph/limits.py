"""Numbers at which a graph decides: the limits of its values, and the sizes that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from onnx_gate.graph.graph import Graph, Node

# A tensor of so many numbers is a list of limits or of ends; a larger one is weights.
_MOST = 64
_COMPARED = frozenset(
    ("Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Clip", "Relu")
)
_SIZED = frozenset((*_COMPARED, "Equal", "Mod", "Div"))
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


def limits_of_values(graph: Graph) -> Mapping[str, Mapping[float, str]]:
    """Return the values that nodes hold against a floating-point number: numbers and operators."""
    found: dict[str, dict[float, str]] = {}
    for node in graph.nodes:
        if node.op_type in _COMPARED and node.proto.domain in ("", "ai.onnx"):
            for name in graph.depends_on_input(node):
                for number in _numbers(graph, node, floats=True):
                    found.setdefault(name, {}).setdefault(number, node.op_type)
    return found


def sizes_named(graph: Graph) -> frozenset[int]:
    """Return the whole numbers that sizes are cut at, divided by or held against."""
    shapes = {v.name: v.type.tensor_type.shape.dim for v in graph.proto.value_info}
    numbers: set[float] = set()
    for node in graph.nodes:
        if node.op_type in _SIZED and graph.depends_on_input(node):
            numbers |= {*_numbers(graph, node, floats=False)}
        elif node.op_type == "Slice" and not _is_fixed(graph, node, shapes):
            numbers |= {*_numbers(graph, node, floats=False, of=node.inputs[1:3])}
    return frozenset(abs(int(n)) for n in numbers)


def _is_fixed(graph: Graph, node: Node, shapes: Mapping[str, object]) -> bool:
    """Return whether a slice cuts axes whose lengths are the same at every size."""
    dims, axes = shapes.get(node.inputs[0]), node.inputs[3:4]
    if dims is None or not axes or axes[0] not in graph.constants:
        return False
    known: list[onnx.TensorShapeProto.Dimension] = list(dims)  # type: ignore[call-overload]
    cut = [int(axis) for axis in graph.constants.array(axes[0]).reshape(-1)]
    return all(-len(known) <= a < len(known) and known[a].HasField("dim_value") for a in cut)


def _numbers(
    graph: Graph, node: Node, *, floats: bool, of: tuple[str, ...] | None = None
) -> Iterator[float]:
    """Yield the finite numbers that a node is given as constants, or has among its attributes."""
    if floats and node.op_type == "Relu":
        yield 0.0
    for attribute in node.proto.attribute:
        if floats and node.op_type == "Clip" and attribute.name in ("min", "max"):
            yield attribute.f
    for name in node.inputs[1:] if of is None and node.op_type == "Clip" else of or node.inputs:
        tensor = graph.constants.tensor(name) if name in graph.constants else None
        if tensor is None or not 0 < graph.constants.count(name) <= _MOST:
            continue
        if graph.constants.is_float(name) if floats else tensor.data_type in _INTEGERS:
            if floats and graph.constants.count(name) != 1:
                continue
            for number in graph.constants.array(name).reshape(-1).tolist():
                if abs(float(number)) < float(2**100):
                    yield float(number)
