"""An exported graph as faults see it: its nodes by type, its constants as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


class DoesNotApply(Exception):
    """The graph has nothing that this fault could change."""


class Graph:
    """A model with its initializers at hand as arrays."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.tensors = {t.name: t for t in model.graph.initializer}

    def nodes(self, *types: str) -> list[onnx.NodeProto]:
        """The nodes of these types in topological order; at least one."""
        found = [n for n in self.model.graph.node if n.op_type in types]
        if not found:
            raise DoesNotApply(f"no {' or '.join(types)}")
        return found

    def array(self, name: str) -> Array:
        """A copy of a constant."""
        if name not in self.tensors:
            raise DoesNotApply(f"{name} is not a constant")
        return numpy_helper.to_array(self.tensors[name]).copy()

    def store(self, name: str, array: Array) -> None:
        """Replace a constant by another of the same name."""
        self.tensors[name].CopyFrom(numpy_helper.from_array(array, name))

    def weights(self) -> list[str]:
        """The matrices and kernels of all products, in topological order."""
        products = self.nodes("Conv", "MatMul", "Gemm")
        return [i for n in products for i in n.input[1:2] if i in self.tensors]

    def biases(self) -> list[str]:
        """The vectors added after a product, in topological order."""
        names = []
        for node in self.nodes("Conv", "Gemm", "Add"):
            place = 2 if node.op_type != "Add" else 1
            if len(node.input) > place and node.input[place] in self.tensors:
                names.append(node.input[place])
        return [name for name in names if self.array(name).ndim == 1]

    def parameters(self) -> list[str]:
        """Every floating-point constant of more than one element."""
        return [
            name
            for name, tensor in self.tensors.items()
            if tensor.data_type == onnx.TensorProto.FLOAT and math.prod(tensor.dims) > 1
        ]

    def rename_input(self, old: str, new: str, behind: onnx.NodeProto) -> None:
        """Let every node but ``behind`` read ``new`` where it read ``old``."""
        for node in self.model.graph.node:
            if node is not behind:
                node.input[:] = [new if i == old else i for i in node.input]


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """The value of an attribute; ``DoesNotApply`` where it is not written down."""
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    raise DoesNotApply(f"{node.op_type} without {name}")


def set_attribute(node: onnx.NodeProto, name: str, value: object) -> None:
    """Set an attribute, new or not."""
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def middle(items: Sequence[T]) -> T:
    """The one in the middle."""
    return items[len(items) // 2]
