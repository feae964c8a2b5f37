"""Lengths at which what a graph sums, multiplies or numbers leaves its type."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from onnx import TensorProto

from onnx_gate.graph.arithmetic import stored
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.intervals import ANYWHERE, Interval, intervals
from onnx_gate.graph.limits import Dimension, ends_of_narrow, shapes_of
from onnx_gate.graph.walk import attribute

# A mebi of whole numbers are 8 MiB, which are drawn and added in milliseconds.
LONGEST = 2**20
# Uniform numbers are half of the largest on average, products of two a quarter: so many times the length
# that the largest need is beyond the end for most draws. And some more: no narrow type holds the sum.
_TIMES, _MORE = 4, 3
# What begins anew, or is infinite, from here on. PyTorch sums integers in 64 bits, as wide files do.
_ENDS: Mapping[int, float] = {
    TensorProto.INT32: 2.0**31,
    TensorProto.UINT32: 2.0**32,
    TensorProto.FLOAT16: 2.0**16,
    TensorProto.BFLOAT16: 2.0**128,
    TensorProto.FLOAT: 2.0**128,
    TensorProto.DOUBLE: 2.0**1023,
}
_SUMS = frozenset(("ReduceSum", "ReduceMean", "ReduceL1", "CumSum", "MatMul"))
_PRODUCT = "ReduceProd"


def lengths_beyond(graph: Graph, given: Mapping[str, Interval]) -> frozenset[int]:
    """Return lengths beyond those at which sums and products leave their types, and places narrow ones.

    ``given`` is between which ends the inputs lie.
    """
    kinds = {v.name: v.type.tensor_type.elem_type for v in graph.proto.value_info}
    kinds |= {v.name: v.type.tensor_type.elem_type for v in graph.proto.input}
    summing = [n for n in graph.nodes if n.op_type in _SUMS or n.op_type == _PRODUCT]
    known = intervals(graph, {}, given) if summing else {}
    shapes = shapes_of(graph)
    ends: set[float] = {*map(float, ends_of_narrow(graph))}
    for node in summing:
        fixed = _fixed(graph, node, shapes.get(node.inputs[0]))
        if fixed is None or not graph.depends_on_input(node):
            continue
        terms = [known.get(name, ANYWHERE) for name in node.proto.input]
        # What is summed in 64 bits and then put into 32 has left these, too.
        cast = (r.proto for r in graph.readers.get(node.outputs[0], ()) if r.op_type == "Cast")
        for kind in {kinds.get(node.inputs[0], 0), *(attribute(each, "to", 0) for each in cast)}:
            if kind in _ENDS:
                ends |= {length / fixed for length in _lengths(node, _ENDS[kind], terms)}
    # Where four times as long is too long, as long as can be is beyond the end for large numbers.
    return frozenset(min(_TIMES * math.ceil(n) + _MORE, LONGEST) for n in ends if 1 < n < LONGEST)


def _lengths(node: Node, end: float, terms: Collection[Interval]) -> Iterator[float]:
    """Yield how many of the largest terms come to the end of their type, if they have an end."""
    first, *rest = ([abs(low), abs(high)] for low, high in terms)
    if node.op_type == _PRODUCT:
        step = _step(*first)
        yield math.log(end) / step if step else math.inf
        return
    largest = max(first) * (max(rest[0]) if node.op_type == "MatMul" else 1.0)
    if 0 < largest < math.inf:
        yield end / largest


def _step(one: float, other: float) -> float:
    """Return by how much a factor moves the logarithm of a product.

    Of what begins at zero the logarithm is one below that of the largest, on average; where nothing
    bounds the factors it is taken for one.
    """
    high = max(one, other)
    if not 0 < high < math.inf:
        return 1.0
    return max(abs(math.log(max(min(one, other), high / math.e))), abs(math.log(high)))


def _fixed(graph: Graph, node: Node, dims: list[Dimension] | None) -> int | None:
    """Return how many terms there are at least, ``None`` where there are as many at every size."""
    if dims is None:
        return 1
    axes = _axes(graph, node)
    over = dims if axes is None else [dims[a] for a in axes if -len(dims) <= a < len(dims)]
    if all(dim.HasField("dim_value") for dim in over):
        return None
    return math.prod(dim.dim_value for dim in over if dim.dim_value) or 1


def _axes(graph: Graph, node: Node) -> list[int] | None:
    """Return the axes along which a node sums or multiplies, ``None`` for all."""
    if node.op_type == "MatMul":
        return [-1]
    named = [name for name in node.proto.input[1:2] if name]
    array = stored(graph, named[0]) if named else None
    if array is not None:
        return [int(axis) for axis in array.reshape(-1)]
    axes = attribute(node.proto, "axes")
    return None if axes is None else [*axes]
