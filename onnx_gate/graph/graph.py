"""An ONNX graph as a diagnosis walks it: nodes in order, who makes what, constants where they lie."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_gate.runtimes.base import Array

_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)
# Types that NumPy holds as they are, and that can therefore be read from a file in place.
_PLAIN = frozenset("?bBhHiIlLqQefd")


@dataclass(frozen=True, eq=False)
class Node:
    """A node with the values that it reads, those of its subgraphs included, and makes."""

    index: int
    proto: onnx.NodeProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return str(self.proto.op_type)


class Constants:
    """Initializers by name; external data is mapped from its file and never read as a whole.

    ``arrays`` are the values of those that are in no file.
    """

    def __init__(
        self,
        tensors: Iterable[onnx.TensorProto],
        folder: Path,
        arrays: Mapping[str, Array] | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._tensors = {tensor.name: tensor for tensor in tensors}
        self._arrays: dict[str, Array] = dict(arrays or {})

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def proto(self, name: str) -> onnx.TensorProto:
        """Return the tensor as the file has it."""
        return self._tensors[name]

    def array(self, name: str) -> Array:
        """Return the values; raises ``ValueError`` where the file with them is not to be had."""
        if name not in self._arrays:
            tensor = self._tensors[name]
            external = tensor.data_location == onnx.TensorProto.EXTERNAL
            self._arrays[name] = self._map(tensor) if external else _embedded(tensor)
        return self._arrays[name]

    def _map(self, tensor: onnx.TensorProto) -> Array:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = (self._folder / entries.get("location", "")).resolve()
        if self._folder not in path.parents or not path.is_file():
            raise ValueError(f"the external data of {tensor.name} is not beside the file")
        dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.data_type))
        if dtype.char not in _PLAIN:
            return np.asarray(numpy_helper.to_array(tensor, str(self._folder)))
        shape = tuple(tensor.dims)
        if 0 in shape:
            return np.zeros(shape, dtype)
        offset = int(entries.get("offset", 0))
        mapped = np.memmap(path, dtype, "r", offset, shape)
        return mapped if mapped.flags.aligned else np.array(mapped)


class Graph:
    """A graph in topological order, of the nodes that ``outputs`` depend on."""

    def __init__(
        self,
        proto: Any,
        constants: Constants,
        opsets: Iterable[onnx.OperatorSetIdProto],
        ir_version: int,
        outer: Iterable[str] = (),
    ) -> None:
        self.proto, self.constants = proto, constants
        self.opsets, self.ir_version = tuple(opsets), ir_version
        self.inputs = tuple(v.name for v in proto.input if v.name not in constants)
        self.outputs = tuple(v.name for v in proto.output)
        self.nodes = tuple(
            Node(i, node, reads, tuple(o for o in node.output if o))
            for i, (node, reads) in enumerate(_in_order(proto.node))
        )
        self.producer = {o: node for node in self.nodes for o in node.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outer = frozenset(outer)

    @functools.cached_property
    def fixed(self) -> frozenset[str]:
        """The values that depend on no input of the graph: constants, and what is made of them."""
        fixed: set[str] = set()
        for node in self.nodes:
            if node.op_type not in _RANDOM and all(
                name in self.constants or name in fixed for name in node.inputs
            ):
                fixed.update(node.outputs)
        return frozenset(fixed)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is the same for all inputs."""
        return name in self.constants or name in self.fixed

    def depends_on_input(self, node: Node) -> tuple[str, ...]:
        """Return the inputs of a node that depend on the graph's inputs."""
        return tuple(name for name in node.inputs if not self.is_constant(name))

    def ancestors(self, names: Iterable[str]) -> list[Node]:
        """Return the nodes that these values depend on, in topological order."""
        nodes: dict[int, Node] = {}
        pending = list(names)
        while pending:
            node = self.producer.get(pending.pop())
            if node is not None and node.index not in nodes:
                nodes[node.index] = node
                pending.extend(node.inputs)
        return [nodes[index] for index in sorted(nodes)]

    def bodies(self, node: Node) -> Iterator[tuple[str, Graph]]:
        """Return the subgraphs of a node by the name of their attribute."""
        for attribute in node.proto.attribute:
            if attribute.HasField("g"):
                yield attribute.name, self._body(attribute.g)

    def _body(self, proto: onnx.GraphProto) -> Graph:
        own = {tensor.name for tensor in proto.initializer}
        constants = Constants(
            [*self.constants._tensors.values(), *proto.initializer],
            self.constants._folder,
            {n: a for n, a in self.constants._arrays.items() if n not in own},
        )
        outer = {*self.inputs, *self.producer, *self.outer}
        return Graph(proto, constants, self.opsets, self.ir_version, outer)


def read_graph(
    proto: onnx.ModelProto, path: Path, arrays: Mapping[str, Array] | None = None
) -> Graph:
    """Return the main graph of a model that was read from ``path``, its own functions inlined.

    ``arrays`` are the values of initializers that are in no file.
    """
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    constants = Constants(proto.graph.initializer, path.parent, arrays)
    return Graph(proto.graph, constants, proto.opset_import, proto.ir_version)


def _in_order(protos: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, tuple[str, ...]]]:
    """Yield nodes and what they read, each after those that it reads from; else as in the file.

    Some tools append what they add, and ONNX Runtime does not mind.
    """
    nodes = [(node, _reads(node)) for node in protos]
    unmade = Counter(o for node, _ in nodes for o in node.output if o)
    waiting: dict[str, list[tuple[onnx.NodeProto, tuple[str, ...]]]] = {}
    for each in nodes:
        ready = [each]
        while ready:
            node, reads = ready.pop()
            missing = next((name for name in reads if unmade[name]), None)
            if missing is not None:
                waiting.setdefault(missing, []).append((node, reads))
                continue
            yield node, reads
            for name in node.output:
                unmade[name] = 0
                ready += reversed(waiting.pop(name, ()))
    yield from (each for rest in waiting.values() for each in rest)


def _reads(node: onnx.NodeProto) -> tuple[str, ...]:
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            names += _free(graph)
    return tuple(dict.fromkeys(names))


def _free(graph: onnx.GraphProto) -> list[str]:
    """Return the names that a subgraph takes from outside."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    names = []
    for node in graph.node:
        names += [name for name in _reads(node) if name not in own]
        own.update(node.output)
    return names + [v.name for v in graph.output if v.name not in own]


def _embedded(tensor: onnx.TensorProto) -> Array:
    array = np.asarray(numpy_helper.to_array(tensor))
    return array if array.flags.aligned else np.array(array)


def opset_of(opsets: Iterable[onnx.OperatorSetIdProto]) -> Mapping[str, int]:
    """Return the versions by domain."""
    return {opset.domain: opset.version for opset in opsets}
