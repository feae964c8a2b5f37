"""Numbers at which a graph decides: the limits of its values, and the sizes that it names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import onnx

from onnx_gate.graph.arithmetic import MOST_LIMITS, sizes_rounded, stored
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.walk import attribute

Dimension = onnx.TensorShapeProto.Dimension
EQUAL = "Equal"
_COMPARED = frozenset(
    ("Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Clip", "Relu", EQUAL)
)
_QUANTISED = "QuantizeLinear"
# What has states, which may climb with every step that there is.
LOOPED = frozenset(("RNN", "LSTM", "Loop", "Scan"))
_LINEAR = frozenset(("Add", "Sub", "Mul", "Div"))
# What passes on the numbers of its first input, or some of them; and of several, from this one on.
_PASSED = frozenset(
    (
        *(
            "Cast",
            "Concat",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
            "Identity",
        ),
        *("Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where"),
    )
)
_JOINED: Mapping[str, int] = {"Concat": 0, "Where": 1}
_REARRANGED = frozenset(("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
# Beyond which an exponential is infinite, by the type that it is computed in: the logarithm of the
# largest number. As far above the rest of its row an element leaves all others a softmax of almost 0,
# of which a logarithm shows the least.
_LARGEST: Mapping[int, float] = {
    onnx.TensorProto.FLOAT: math.log(2.0**128),
    onnx.TensorProto.BFLOAT16: math.log(2.0**128),
    onnx.TensorProto.FLOAT16: math.log(2.0**16),
    onnx.TensorProto.DOUBLE: math.log(2.0**1023),
}
# Up to which whole numbers types are exact, or go: what is counted or numbered in them fails beyond.
_NARROW: Mapping[int, int] = {
    onnx.TensorProto.FLOAT16: 2**11,
    onnx.TensorProto.BFLOAT16: 2**8,
    onnx.TensorProto.INT8: 2**7,
    onnx.TensorProto.UINT8: 2**8,
    onnx.TensorProto.INT16: 2**15,
}
_SIZED = frozenset((*_COMPARED, "Mod", "Div"))
# Windows that are so few apart are small divisors: all remainders of these are tested, named or not.
FEW_APART = 8
_WINDOWED = ("Conv", "MaxPool", "AveragePool")
_COUNTED = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.FLOAT)


@dataclass(frozen=True)
class FileLimit:
    """A number that an operator holds a value against.

    ``values`` are that value with the number, and those that it is made of by adding, subtracting or
    multiplying a constant, each with the number at which the operator decides. Who makes ``result``
    as well has the same limit.
    """

    operator: str
    values: tuple[tuple[str, float], ...]
    result: str = ""


def limits_of_values(graph: Graph) -> Iterator[FileLimit]:
    """Yield the numbers that nodes hold values against, each of those in a list of them."""
    kinds = {v.name: v.type.tensor_type.elem_type for v in graph.proto.value_info}
    for node in graph.nodes:
        made = graph.producer.get(node.inputs[0]) if node.op_type == "Log" else node
        if made is not None and made.op_type == ("Softmax" if node.op_type == "Log" else "Exp"):
            end = _LARGEST[kinds.get(made.inputs[0], onnx.TensorProto.FLOAT)]
            yield FileLimit(made.op_type, tuple(_back(graph, made.inputs[0], end)), made.outputs[0])
        if node.op_type in LOOPED and node.proto.domain in ("", "ai.onnx"):
            yield from _of_states(graph, node)
        if node.op_type == _QUANTISED and node.proto.domain in ("", "ai.onnx"):
            for number in dict.fromkeys(_saturated(graph, node)):
                yield FileLimit(node.op_type, tuple(_back(graph, node.inputs[0], number)))
        if node.op_type in _COMPARED and node.proto.domain in ("", "ai.onnx"):
            for name in graph.depends_on_input(node):
                for number in dict.fromkeys(_numbers(graph, node)):
                    yield FileLimit(node.op_type, tuple(_back(graph, name, number)))


def _back(graph: Graph, name: str, number: float) -> Iterator[tuple[str, float]]:
    """Yield a value with a number, and what it is made of with the one that becomes this."""
    pending, known = [(name, number)], set[str]()
    while pending:
        name, number = pending.pop()
        if name in known:
            continue
        known.add(name)
        yield name, number
        node = graph.producer.get(name)
        own = () if node is None else graph.depends_on_input(node)
        if node is None or not own:
            continue
        if node.op_type in _PASSED:
            count = None if node.op_type in _JOINED else 1
            from_here = node.inputs[_JOINED.get(node.op_type, 0) :][:count]
            pending += [(each, number) for each in reversed(from_here) if each in own]
        elif node.op_type == "Neg":
            pending.append((own[0], -number))
        elif node.op_type in _LINEAR and len(own) == 1:
            constant = next(iter(_numbers(graph, node, most=1)), None)
            if constant is None or (node.op_type in ("Mul", "Div") and not constant):
                continue
            if node.op_type == "Div" and node.inputs[0] != own[0]:
                continue
            number = {
                "Add": number - constant,
                "Sub": number + constant if node.inputs[0] == own[0] else constant - number,
                "Mul": number / (constant or 1.0),
                "Div": number * constant,
            }[node.op_type]
            pending.append((own[0], number))


def _of_states(graph: Graph, node: Node) -> Iterator[FileLimit]:
    """Yield the limits of what is carried from step to step, by the value that leaves it.

    ``clip`` cuts off what activations are given: of relus that is the state, and of an LSTM its cell.
    """
    names = node.proto.output
    if node.op_type in ("RNN", "LSTM"):
        end = attribute(node.proto, "clip", 0.0)
        bounded = node.op_type == "RNN" and b"Relu" not in attribute(node.proto, "activations", [])
        for name in () if bounded or not end else names if node.op_type == "RNN" else names[2:]:
            for number in (end, -end)[: 1 + (node.op_type == "LSTM")]:
                yield FileLimit(node.op_type, tuple(_onwards(graph, name, number)))
    for _, body in graph.bodies(node):
        # The first that the body of a Loop makes is whether it goes on.
        first = 1 if node.op_type == "Loop" else 0
        left = {name: place - first for place, name in enumerate(body.outputs)}
        for each in body.nodes:
            if each.op_type not in _COMPARED or not body.depends_on_input(each):
                continue
            for value, _ in _onwards(body, each.outputs[0], 0.0):
                if 0 <= left.get(value, -1) < len(names):
                    for number in dict.fromkeys(_numbers(body, each)):
                        made = names[left[value]]
                        yield FileLimit(node.op_type, tuple(_onwards(graph, made, number)))


def _saturated(graph: Graph, node: Node) -> Iterator[float]:
    """Yield the ends of what a value is quantised to."""
    scales, zeros = stored(graph, node.inputs[1]), np.zeros(1, np.uint8)
    given = stored(graph, node.inputs[2]) if len(node.inputs) > 2 else zeros
    if scales is None or given is None or given.dtype.kind not in "iu":
        return
    if given.size != scales.size:
        return
    ends = np.iinfo(given.dtype.name)
    for end in (ends.min, ends.max):
        for scale, zero in zip(scales.reshape(-1), given.reshape(-1), strict=True):
            yield (end - int(zero)) * float(scale)


def _onwards(graph: Graph, name: str, number: float) -> Iterator[tuple[str, float]]:
    """Yield a value with a number, and what passes all of it on."""
    pending = [name]
    while pending:
        value = pending.pop()
        yield value, number
        readers = graph.readers.get(value, ())
        pending += [r.outputs[0] for r in readers if r.op_type in _REARRANGED]


def sizes_named(graph: Graph) -> frozenset[int]:
    """Return the whole numbers that sizes are cut at, divided by, held against or numbered up to.

    And how far windows reach, from where on they leave something out, how far apart they are, and at
    which sizes amounts of them are rounded wrongly.
    """
    shapes = shapes_of(graph)
    numbers: set[float] = set()
    for node in graph.nodes:
        if node.op_type in _SIZED and graph.depends_on_input(node):
            numbers |= {*_numbers(graph, node, whole=True)}
        elif node.op_type == "Slice" and not _is_fixed(graph, node, shapes):
            numbers |= {*_numbers(graph, node, node.inputs[1:3], whole=True)}
        elif node.op_type in ("Pad", *_WINDOWED):
            numbers |= {*_reached(graph, node, shapes.get(node.inputs[0], []))}
    numbers |= {*sizes_rounded(graph)}
    return frozenset(abs(int(n)) for n in numbers) | ends_of_narrow(graph)


def ends_of_narrow(graph: Graph) -> frozenset[int]:
    """Return up to which whole numbers the narrow types go that counts and places are put into."""
    kinds = {v.name: v.type.tensor_type.elem_type for v in _known(graph)}
    to = {
        attribute(node.proto, "to", 0)
        for node in graph.nodes
        if node.op_type == "Cast" and kinds.get(node.inputs[0]) in _COUNTED
    }
    return frozenset(_NARROW[each] for each in to if each in _NARROW)


def shapes_of(graph: Graph) -> dict[str, list[Dimension]]:
    """Return the dimensions of the values whose number of them is known."""
    types = {v.name: v.type.tensor_type for v in _known(graph)}
    return {name: [*each.shape.dim] for name, each in types.items() if each.HasField("shape")}


def _known(graph: Graph) -> Iterator[onnx.ValueInfoProto]:
    return chain(graph.proto.input, graph.proto.value_info)


def _is_fixed(graph: Graph, node: Node, shapes: Mapping[str, list[Dimension]]) -> bool:
    """Return whether a slice cuts axes whose lengths are the same at every size."""
    known, axes = shapes.get(node.inputs[0]), node.inputs[3:4]
    cut = None if known is None or not axes else stored(graph, axes[0])
    if known is None or cut is None:
        return False
    return all(-len(known) <= a < len(known) and known[a].HasField("dim_value") for a in cut.flat)


def _reached(graph: Graph, node: Node, dims: list[Dimension]) -> Iterator[int]:
    """Yield how far a window reaches, or what is put before and behind, along axes of any length.

    And the steps between windows of which remainders are not gone to anyhow.
    """
    if node.op_type == "Pad":
        amounts = stored(graph, node.inputs[1]) if len(node.inputs) == 2 else None
        reached = [] if amounts is None else [int(n) for n in amounts.reshape(-1)]
        dims = 2 * dims
    else:
        said = {a.name: [*a.ints] for a in node.proto.attribute}
        weights = node.inputs[1:2]
        own = graph.constants.dims(weights[0])[2:] if {*weights} & {*graph.constants} else ()
        reached = said.get("kernel_shape", [*own])
        apart = said.get("dilations", [1] * len(reached))
        reached = [(n - 1) * d + 1 for n, d in zip(reached, apart, strict=True)]
        dims = dims[2:]
        steps = zip(said.get("strides", []), dims, strict=False)
        yield from (n for n, dim in steps if n > FEW_APART and not dim.HasField("dim_value"))
    if len(dims) == len(reached):
        yield from (
            n for n, dim in zip(reached, dims, strict=True) if not dim.HasField("dim_value")
        )


def _numbers(
    graph: Graph,
    node: Node,
    of: tuple[str, ...] | None = None,
    *,
    whole: bool = False,
    most: int = MOST_LIMITS,
) -> Iterator[float]:
    """Yield the finite numbers that a node is given as constants, or has among its attributes.

    The ``whole`` ones that sizes may be alone, or all.
    """
    if not whole and node.op_type == "Relu":
        yield 0.0
    for each in node.proto.attribute:
        if not whole and node.op_type == "Clip" and each.name in ("min", "max"):
            yield each.f
    if of is None:
        of = node.inputs[1:] if node.op_type == "Clip" else node.inputs
    for name in of:
        array = stored(graph, name)
        if array is None or not 0 < array.size <= most:
            continue
        if array.dtype in (np.int64, np.int32) if whole else array.dtype.kind in "fViu":
            for number in array.reshape(-1).tolist():
                if abs(number) < 2**100:
                    yield number
