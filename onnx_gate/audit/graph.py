"""An exported graph as faults see it: nodes in order, who makes and reads a value, constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.graph.walk import graphs, nodes
from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class GraphInput:
    """An input of the graph: its name there, and what the manifest says of it."""

    name: str
    declared: str
    spec: InputSpec


class Graph:
    """A model whose large constants lie in ``folder`` beside it; nothing here changes it.

    ``nodes`` are those of bodies as well (``bodies.nodes``), a name is one value throughout.
    ``sizes`` has one tested size of every dynamic dimension.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path,
        inputs: Sequence[GraphInput] = (),
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.model, self._folder = model, folder
        self.inputs, self.sizes = tuple(inputs), dict(sizes or {})
        within = list(nodes(model.graph))
        self.nodes: tuple[onnx.NodeProto, ...] = tuple(node for node, _ in within)
        self._graphs = tuple(graph for _, graph in within)
        self.outputs = tuple(value.name for value in model.graph.output)
        self.makers = {name: i for i, node in enumerate(self.nodes) for name in node.output}
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in node.input:
                self.readers.setdefault(name, []).append(index)
        self._constants: dict[str, TensorProto] = {
            tensor.name: tensor for graph in graphs(model.graph) for tensor in graph.initializer
        }
        for node in self.nodes:
            tensor = _constant(node)
            if tensor is not None:
                self._constants[node.output[0]] = tensor
        self._shapes = _shapes(model)

    def beside(self, index: int, other: int) -> bool:
        """Return whether two nodes are in the same body, where each can read what the other does."""
        return self._graphs[index] is self._graphs[other]

    def is_constant(self, name: str) -> bool:
        """Return whether a value is stored in the file."""
        return name in self._constants

    def is_float(self, name: str) -> bool:
        """Return whether a value is a stored floating-point one."""
        return name in self._constants and self._constants[name].data_type in FLOATS

    def is_computed(self, name: str) -> bool:
        """Return whether a node makes a value from others."""
        return name in self.makers and name not in self._constants

    def dims(self, name: str) -> tuple[int | str, ...] | None:
        """Return the shape of a value, ``None`` where the file does not say it."""
        if name in self._constants:
            return tuple(self._constants[name].dims)
        return self._shapes.get(name)

    def count(self, name: str) -> int:
        """Return the number of elements of a constant."""
        return math.prod(self._constants[name].dims)

    def array(self, name: str) -> Array:
        """Return a copy of a constant."""
        tensor = self._constants[name]
        if tensor.data_location == TensorProto.EXTERNAL:
            stored = {each.key: each.value for each in tensor.external_data}
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
            count, offset = self.count(name), int(stored["offset"])
            if count * dtype.itemsize == int(stored["length"]):  # else elements share bytes
                flat: Array = np.fromfile(
                    self._folder / stored["location"], dtype, count, offset=offset
                )
                return flat.reshape(tuple(tensor.dims))
        array: Array = numpy_helper.to_array(tensor, base_dir=str(self._folder)).copy()
        return array


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, text as ``str``."""
    for item in node.attribute:
        if item.name == name:
            value = helper.get_attribute_value(item)
            return value.decode() if isinstance(value, bytes) else value
    return default


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


def _constant(node: onnx.NodeProto) -> TensorProto | None:
    if node.op_type != "Constant":
        return None
    for item in node.attribute:
        if item.name == "value":
            tensor: TensorProto = item.t
            return tensor
        if item.name in ("value_float", "value_floats"):
            value = helper.get_attribute_value(item)
            return numpy_helper.from_array(np.asarray(value, np.float32))
        if item.name in ("value_int", "value_ints"):
            value = helper.get_attribute_value(item)
            return numpy_helper.from_array(np.asarray(value, np.int64))
    return None


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int | str, ...]]:
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what it cannot infer, some faults do not apply to
        inferred = model.graph
    shapes = {}
    every = (v for g in graphs(inferred) for v in (*g.value_info, *g.input, *g.output))
    for value in every:
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            shapes[value.name] = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim
            )
    return shapes
