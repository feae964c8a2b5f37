"""A part of an ONNX graph as a model of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx
import onnx.shape_inference
from onnx import helper
from onnx.helper import np_dtype_to_tensor_dtype

from onnx_gate.graph.graph import Graph, Node
from onnx_gate.runtimes.base import Array


def between(graph: Graph, outputs: Iterable[str], stop: Collection[str]) -> list[Node]:
    """Return the nodes that make ``outputs`` from the values ``stop``, in topological order."""

    def open_ones(names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in stop]

    return graph.behind(open_ones(outputs), lambda node: open_ones(node.inputs))


def open_ends(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Return the values that these nodes read, none of them makes and no initializer holds."""
    made = {name for node in nodes for name in node.outputs}
    read = (name for node in nodes for name in node.inputs)
    return [n for n in dict.fromkeys(read) if n not in made and n not in graph.constants]


def weight_bytes(graph: Graph, nodes: Sequence[Node]) -> int:
    """Return the bytes of the initializers that these nodes read."""
    return sum(graph.constants.array(name).nbytes for name in stored_by(graph, nodes))


def cut(
    source: onnx.ModelProto,
    graph: Graph,
    nodes: Sequence[Node],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array | None],
    *,
    in_place: bool = False,
) -> onnx.ModelProto:
    """Return a model of these nodes, with what the file says of them.

    ``inputs`` are the values of its open ends. ``outputs`` are declared as shape inference has
    them, else like the arrays, and not at all where there is none. Initializers are in the model,
    wherever they lay; with ``in_place`` they stay there, and inputs may have any sizes.
    """
    stored = graph.constants.tensor if in_place else graph.constants.embedded
    proto = helper.make_graph(
        [node.proto for node in nodes],
        source.graph.name or "graph",
        [_typed(name, array, shaped=not in_place) for name, array in inputs.items()],
        [_typed(name, array, shaped=False) for name, array in outputs.items()],
        [stored(name) for name in stored_by(graph, nodes)],
    )
    proto.metadata_props.extend(source.graph.metadata_props)
    called = {(node.proto.domain, node.op_type) for node in nodes}
    functions = list(source.functions) if any(d not in ("", "ai.onnx") for d, _ in called) else []
    model = helper.make_model(
        proto,
        opset_imports=graph.opsets,
        ir_version=graph.ir_version,
        functions=functions,
        producer_name=source.producer_name,
        producer_version=source.producer_version,
    )
    model.metadata_props.extend(source.metadata_props)
    if any(array is not None for array in outputs.values()):
        _declare(model)
    return model


def _declare(model: onnx.ModelProto) -> None:
    """Declare the outputs as what the nodes make, which need not be what is expected of them."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except Exception:
        return
    known = {value.name: value.type for value in inferred.graph.output}
    for value in model.graph.output:
        tensor = known[value.name].tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            value.type.CopyFrom(known[value.name])


def stored_by(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Return the initializers that these nodes read."""
    read = (name for node in nodes for name in node.inputs)
    return [name for name in dict.fromkeys(read) if name in graph.constants]


def _typed(name: str, array: Array | None, *, shaped: bool) -> onnx.ValueInfoProto:
    if array is None:
        empty: onnx.ValueInfoProto = helper.make_empty_tensor_value_info(name)
        return empty
    shape = list(array.shape) if shaped else [None] * array.ndim
    value: onnx.ValueInfoProto = helper.make_tensor_value_info(
        name, np_dtype_to_tensor_dtype(array.dtype), shape
    )
    return value
