"""Faults of how a graph is put together: what is read, from where, in which order, at which size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import helper

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import FaultSite, Seeding, in_place, replaced
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_input
from onnx_gate.graph.walk import attribute
from onnx_gate.runtimes.base import Array

# A mask's fill is at least as negative as this; float16's lowest number is -65504.
_FILL = -1e3
# What Slice's end says where it means the end of an axis.
_ENDLESS = 1 << 30


def _index_constant(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    stored = graph.is_stored(node.input[1]) and 0 < graph.count(node.input[1]) < 1 << 16
    return (1,) if stored else ()


def _next_index(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    array = graph.array(node.input[1])
    dims = graph.dims(node.input[0])
    axis = attribute(node, "axis", 0)
    size = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
    other = array + 1
    if isinstance(size, int) and size > 0:
        other = np.where(array == size - 1, array - 1, other)
    other = np.where(array == -1, -2, other)
    return replaced(graph, site, other, f"its index is {_shown(other)}, not {_shown(array)}")


def stored_rows(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """Yield the operand of a node that is a stored table."""
    name = node.input[0]
    dims = graph.dims(name)
    return (0,) if graph.is_float(name) and dims is not None and len(dims) == 2 else ()


def _rolled(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    array = graph.array(graph.nodes[site.index].proto.input[0])
    words = "the rows of its table are one off"
    return replaced(graph, site, np.roll(array, 1, axis=0), words)


def _slice_ends(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    for operand in (1, 2):
        if len(node.input) > operand and graph.is_stored(node.input[operand]):
            array = graph.array(node.input[operand])
            if array.size == 1 and abs(int(array.reshape(-1)[0])) < _ENDLESS:
                yield operand


def _slice_off(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    old = graph.array(node.input[site.operand])
    end = "begins" if site.operand == 1 else "ends"
    new = old + 1 if int(old.reshape(-1)[0]) != -1 else old - 1
    return replaced(graph, site, new, f"it {end} at {_shown(new)}, not {_shown(old)}")


def _triangle(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    diagonal = node.input[1] if len(node.input) > 1 else ""
    old = int(graph.array(diagonal).reshape(-1)[0]) if diagonal else 0
    name = f"{node.output[0]}__diagonal"
    new = onnx.NodeProto()
    new.CopyFrom(node)
    new.input[:] = [node.input[0], name]
    value = np.asarray(old + 1, np.int64)
    words = f"its diagonal is {old + 1}, not {old}"
    return Edit(words, nodes={site.index: (new,)}, tensors={name: value})


def _known_diagonal(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    return (0,) if len(node.input) < 2 or graph.is_stored(node.input[1]) else ()


def _residual(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """The operands of an addition of two computed values, either of which can be forgotten."""
    shapes = [graph.dims(name) for name in node.input]
    if all(map(graph.is_computed, node.input)) and shapes[0] == shapes[1]:
        yield from (0, 1)


def _drop(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    kept = node.input[1 - site.operand]
    new = helper.make_node("Identity", [kept], list(node.output), node.name)
    return in_place(site, new, "one of the two values that it adds is left out")


def _unordered(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """A node whose first two operands can be exchanged without another shape."""
    operands = node.input[-2:] if node.op_type == "Where" else node.input[:2]
    if len(operands) < 2:
        return ()
    first, second = operands
    shape = graph.dims(first)
    if first == second or shape is None or shape != graph.dims(second):
        return ()
    square = node.op_type != "MatMul" or (len(shape) > 1 and shape[-1] == shape[-2])
    return (0,) if square and (node.op_type != "Concat" or len(node.input) == 2) else ()


def _exchange(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    a, b = (1, 2) if node.op_type == "Where" else (0, 1)
    new = with_input(with_input(node, a, node.input[b]), b, node.input[a])
    return in_place(site, new, "two of its operands are exchanged")


def _fill(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """The branch of a Where that fills what is masked."""
    for operand in (1, 2):
        value = graph.scalar(node.input[operand])
        if value is not None and value < _FILL:
            yield operand


def _unmask(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    """Fill with zero where scores are added to, and take the scores themselves otherwise."""
    node = graph.nodes[site.index].proto
    other = node.input[3 - site.operand]
    words = "its mask is ignored"
    if graph.is_stored(other) and graph.count(other) == 1:
        array = graph.array(node.input[site.operand])
        return replaced(graph, site, np.zeros_like(array), words)
    return in_place(site, with_input(node, site.operand, other), words)


def _asked_sizes(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """A Shape node that asks for a dynamic dimension of an input."""
    dims = graph.dims(node.input[0])
    known = {each.name for each in graph.fed}
    if node.input[0] not in known or dims is None:
        return ()
    part = _part(node, dims)
    dynamic = [d for d in part if isinstance(d, str)]
    return (0,) if dynamic and all(d in graph.sizes for d in dynamic) else ()


def _part(node: onnx.NodeProto, dims: tuple[int | str, ...]) -> tuple[int | str, ...]:
    end = attribute(node, "end")
    return dims[attribute(node, "start", 0) : len(dims) if end is None else end]


def _bake(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    part = _part(node, graph.dims(node.input[0]) or ())
    values = [graph.sizes[d] if isinstance(d, str) else d for d in part]
    name = f"{node.output[0]}__baked"
    names = [d for d in part if isinstance(d, str)]
    words = f"{', '.join(f'{n}={graph.sizes[n]}' for n in names)} is baked into the graph"
    constant = helper.make_node("Identity", [name], list(node.output), node.name)
    return Edit(
        words, nodes={site.index: (constant,)}, tensors={name: np.asarray(values, np.int64)}
    )


def _output_pairs(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """Outputs, of which this node makes the first, that another output of its form follows."""
    made = list(node.output)
    for position, name in enumerate(graph.outputs[:-1]):
        other = graph.outputs[position + 1]
        form = {v.name: v.type.tensor_type for v in graph.model.graph.output}
        alike = form[name].elem_type == form[other].elem_type
        computed = graph.is_computed(name) and graph.is_computed(other)
        if name in made and alike and computed and _alike(graph, name, other):
            yield position


def _alike(graph: FlatGraph, first: str, second: str) -> bool:
    return len(graph.dims(first) or ()) == len(graph.dims(second) or ())


def _swap_outputs(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    first, second = graph.outputs[site.operand], graph.outputs[site.operand + 1]
    renamed = {first: f"{first}__first", second: f"{second}__second"}
    ends = (
        helper.make_node("Identity", [renamed[second]], [first]),
        helper.make_node("Identity", [renamed[first]], [second]),
    )
    return Edit(f"{first} and {second} are exchanged", renamed=renamed, appended=ends)


def _shown(array: Array) -> str:
    flat = array.reshape(-1).tolist()
    return str(flat[0]) if len(flat) == 1 else f"[{', '.join(map(str, flat[:3]))}, ...]"


SEEDINGS = {
    "index": Seeding(_index_constant, _next_index),
    "table": Seeding(stored_rows, _rolled),
    "slice": Seeding(_slice_ends, _slice_off),
    "diagonal": Seeding(_known_diagonal, _triangle),
    "residual-dropped": Seeding(_residual, _drop),
    "operands-exchanged": Seeding(_unordered, _exchange),
    "outputs-exchanged": Seeding(_output_pairs, _swap_outputs),
    "mask-ignored": Seeding(_fill, _unmask),
    "dimension-baked": Seeding(_asked_sizes, _bake),
}
