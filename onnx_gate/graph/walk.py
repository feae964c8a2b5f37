"""Every node and graph of a model: bodies of If, Loop and Scan, and functions of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    numpy_helper,
)
from onnx.helper import get_attribute_value
from onnx.inliner import inline_local_functions

from onnx_gate.runtimes.bodies import bodies

Dims = tuple[int | str, ...]


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


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of a model, those of its bodies and functions included."""
    yield from (node for node, _ in nodes(model.graph))
    for function in model.functions:
        for node in function.node:
            yield node
            for body in bodies(node):
                yield from (inner for inner, _ in nodes(body))


def constants(model: ModelProto) -> Mapping[str, TensorProto]:
    """Return the initializers, and the values of Constant nodes, by name."""
    every = list(graphs(model.graph))
    tensors = {tensor.name: tensor for each in every for tensor in each.initializer}
    tensors |= {t.values.name: _dense(t) for each in every for t in each.sparse_initializer}
    for node in all_nodes(model):
        tensor = constant_of(node)
        if tensor is not None:
            tensors[node.output[0]] = tensor
    return tensors


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, text as ``str``."""
    for item in node.attribute:
        if item.name == name:
            value = get_attribute_value(item)
            return value.decode() if isinstance(value, bytes) else value
    return default


def trains(node: NodeProto) -> bool:
    """Return whether a BatchNormalization takes the statistics of the batch.

    From opset 14 on an attribute says so, before that the outputs that nothing else has.
    """
    return bool(attribute(node, "training_mode", 0)) or sum(map(bool, node.output)) > 1


def attributes_of(node: NodeProto, opset: int) -> Mapping[str, Any]:
    """Return a node's attributes without graphs, ONNX's defaults among them, text as ``str``."""
    given = list(node.attribute)
    if onnx.defs.has(node.op_type, opset, node.domain):
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        usual = (each.default_value for each in schema.attributes.values())
        given = [*(each for each in usual if each.name), *given]
    values = {item.name: get_attribute_value(item) for item in given if not item.HasField("g")}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def opset_of(model: ModelProto) -> int:
    """Return the version of ONNX's own operators that a model imports."""
    own = (opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx"))
    return max(own, default=0)


def shapes(model: ModelProto) -> Mapping[str, Dims]:
    """Return the shapes that the file says or that follow from it."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what cannot be inferred is not known
        inferred = model.graph
    every = (v for g in graphs(inferred) for v in (*g.value_info, *g.input, *g.output))
    return {
        value.name: tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param
            for d in value.type.tensor_type.shape.dim
        )
        for value in every
        if value.type.tensor_type.HasField("shape")
    }


def inlined(model: ModelProto) -> ModelProto:
    """Return a model, which may be the same one, with no functions of its own and nothing sparse."""
    without: ModelProto = inline_local_functions(model) if model.functions else model
    if any(each.sparse_initializer for each in graphs(without.graph)):
        copy = ModelProto()
        copy.CopyFrom(without)
        for graph in graphs(copy.graph):
            graph.initializer.extend(map(_dense, graph.sparse_initializer))
            del graph.sparse_initializer[:]
        return copy
    return without


def _dense(sparse: SparseTensorProto) -> TensorProto:
    """Return a sparse tensor with its zeros: its indices are linear, or one a dimension."""
    values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        dense.flat[places] = values
    else:
        dense[tuple(places.T)] = values
    return numpy_helper.from_array(dense, sparse.values.name)


def flattened(model: ModelProto) -> ModelProto:
    """Return a model, which may be the same one, with no functions and no name that means two values."""
    model = inlined(model)
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


def constant_of(node: NodeProto) -> TensorProto | None:
    """Return the numbers of a ``Constant``, ``None`` of another node, and where it has none.

    In a function they may be an attribute of its calls: they are known where it is inlined.
    """
    items: Iterable[AttributeProto] = node.attribute if node.op_type == "Constant" else ()
    for item in items:
        if item.ref_attr_name:
            return None
        if item.name == "value":
            tensor: TensorProto = item.t
            return tensor
        if item.name == "sparse_value":
            return _dense(item.sparse_tensor)
        if item.name in ("value_float", "value_floats"):
            return numpy_helper.from_array(np.asarray(get_attribute_value(item), np.float32))
        if item.name in ("value_int", "value_ints"):
            return numpy_helper.from_array(np.asarray(get_attribute_value(item), np.int64))
    return None
