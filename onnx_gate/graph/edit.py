"""A node or a model changed, in a copy of it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.helper import get_attribute_value, np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.bodies import bodies
from onnx_gate.runtimes.half_graph import TYPED


def with_attribute(node: onnx.NodeProto, name: str, value: object) -> onnx.NodeProto:
    """Return a copy of a node with an attribute set, new or not."""
    copy = without_attributes(node, name)
    copy.attribute.append(helper.make_attribute(name, value))
    return copy


def without_attributes(node: onnx.NodeProto, *names: str) -> onnx.NodeProto:
    """Return a copy of a node without some attributes."""
    copy = deepcopy(node)
    kept = [item for item in node.attribute if item.name not in names]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    return copy


def with_input(node: onnx.NodeProto, operand: int, name: str) -> onnx.NodeProto:
    """Return a copy of a node that reads another value."""
    copy = deepcopy(node)
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
    copy = deepcopy(model)
    _change(copy.graph, instead, renamed, itertools.count())
    copy.graph.node.extend(appended)
    return copy


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return a copy of a model whose outputs are these values, of the types that follow."""
    copy = deepcopy(model)
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
    copy = deepcopy(model)
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


def with_floats(
    model: onnx.ModelProto, narrow: Collection[int], wide: int, typed: Collection[str] = TYPED
) -> tuple[onnx.ModelProto, frozenset[int]]:
    """Return a copy of a model with some floating-point types made another, and which of them there were.

    ``typed`` are the attributes that name such a type. Weights have to be in the model itself.
    """
    copy = deepcopy(model)
    change = _Floats(narrow, wide, typed)
    for graph in (copy.graph, *copy.functions):
        change.graph(graph)
    return copy, frozenset(change.found)


@dataclass(frozen=True)
class _Floats:
    narrow: Collection[int]
    wide: int
    typed: Collection[str]
    found: set[int] = field(default_factory=set)

    def graph(self, graph: onnx.GraphProto | onnx.FunctionProto) -> None:
        values = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            values += [*graph.input, *graph.output]
            for tensor in graph.initializer:
                self.tensor(tensor)
        for value in values:
            if value.type.tensor_type.elem_type in self.narrow:
                self.found.add(value.type.tensor_type.elem_type)
                value.type.tensor_type.elem_type = self.wide
        for node in graph.node:
            for attribute in node.attribute:
                self.attribute(node, attribute)
            for body in bodies(node):
                self.graph(body)

    def attribute(self, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
        if attribute.name in self.typed and attribute.i in self.narrow:
            self.found.add(attribute.i)
            attribute.i = self.wide
        elif attribute.HasField("t"):
            self.tensor(attribute.t)
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            tensor = numpy_helper.from_array(np.asarray(get_attribute_value(attribute), np.float32))
            self.tensor(tensor)
            attribute.CopyFrom(helper.make_attribute("value", tensor))

    def tensor(self, tensor: onnx.TensorProto) -> None:
        if tensor.data_type in self.narrow:
            self.found.add(tensor.data_type)
            array = numpy_helper.to_array(tensor).astype(tensor_dtype_to_np_dtype(self.wide))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
