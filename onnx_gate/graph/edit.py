"""A node or a model changed, in a copy of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from onnx_gate.graph.walk import bodies
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.half_graph import TYPED

_OTHER_FLOATS = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


def with_attribute(node: onnx.NodeProto, name: str, value: object) -> onnx.NodeProto:
    """Return a copy of a node with an attribute set, new or not."""
    copy = without_attributes(node, name)
    copy.attribute.append(helper.make_attribute(name, value))
    return copy


def without_attributes(node: onnx.NodeProto, *names: str) -> onnx.NodeProto:
    """Return a copy of a node without some attributes."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    kept = [item for item in node.attribute if item.name not in names]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    return copy


def with_input(node: onnx.NodeProto, operand: int, name: str) -> onnx.NodeProto:
    """Return a copy of a node that reads another value."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[operand] = name
    return copy


def with_nodes(
    model: onnx.ModelProto,
    instead: Mapping[int, Sequence[onnx.NodeProto]],
    renamed: Mapping[str, str],
    appended: Iterable[onnx.NodeProto] = (),
) -> onnx.ModelProto:
    """Return a copy of a model with other nodes in place of some, by their index in a flat graph.

    ``renamed`` are values, of the nodes there are and of those ``instead``, and not of ``appended``.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _change(copy.graph, instead, renamed, itertools.count())
    copy.graph.node.extend(appended)
    return copy


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return a copy of a model whose outputs are these values, of the types that follow."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    del copy.graph.value_info[:]
    copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    return copy


def fed(
    model: onnx.ModelProto, values: Mapping[str, Array]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a copy of a model that is given ``values`` instead of making them, and what it takes.

    A node goes that makes one of them; what else it makes has to be among them too.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [node for node in copy.graph.node if not set(node.output) & values.keys()]
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    produced = {name for node in kept for name in node.output}
    read = {name for node in kept for name in node.input}
    read |= {value.name for value in copy.graph.output}
    taken = {n: v for n, v in values.items() if n in read and n not in produced}
    for name, value in taken.items():
        kind = helper.make_tensor_type_proto(np_dtype_to_tensor_dtype(value.dtype), None)
        copy.graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
    return copy, taken


def _change(
    graph: onnx.GraphProto,
    instead: Mapping[int, Sequence[onnx.NodeProto]],
    renamed: Mapping[str, str],
    numbers: Iterator[int],
) -> None:
    """Change a graph and the bodies in it; ``numbers`` are those of the nodes from here on."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        index = next(numbers)
        for body in bodies(node):
            _change(body, instead, renamed, numbers)
        for each in instead.get(index, (node,)):
            new = graph.node.add()
            new.CopyFrom(each)
            new.input[:] = [renamed.get(name, name) for name in each.input]
            new.output[:] = [renamed.get(name, name) for name in each.output]


def in_float32(model: onnx.ModelProto) -> tuple[onnx.ModelProto, frozenset[int]]:
    """Return a copy of a model in which all floating-point values are float32, and the types that were not.

    Weights have to be in the model itself.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    found: set[int] = set()
    for graph in (copy.graph, *copy.functions):
        _widen(graph, found)
    return copy, frozenset(found)


def _widen(graph: onnx.GraphProto | onnx.FunctionProto, found: set[int]) -> None:
    values = list(graph.value_info)
    if isinstance(graph, onnx.GraphProto):
        values += [*graph.input, *graph.output]
        for tensor in graph.initializer:
            _widen_tensor(tensor, found)
    for value in values:
        if value.type.tensor_type.elem_type in _OTHER_FLOATS:
            found.add(value.type.tensor_type.elem_type)
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in TYPED and attribute.i in _OTHER_FLOATS:
                found.add(attribute.i)
                attribute.i = onnx.TensorProto.FLOAT
            if attribute.HasField("t"):
                _widen_tensor(attribute.t, found)
        for body in bodies(node):
            _widen(body, found)


def _widen_tensor(tensor: onnx.TensorProto, found: set[int]) -> None:
    if tensor.data_type in _OTHER_FLOATS:
        found.add(tensor.data_type)
        array = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
