"""The nodes of a file and its constants, those of functions and subgraphs included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx


def all_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of the graph, of its subgraphs and of the file's own functions."""
    pending = [*proto.graph.node, *(node for f in proto.functions for node in f.node)]
    while pending:
        node = pending.pop(0)
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                pending.extend(graph.node)


def constants(proto: onnx.ModelProto) -> Mapping[str, onnx.TensorProto]:
    """Return the initializers and the values of Constant nodes by name."""
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in all_nodes(proto):
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensors[node.output[0]] = attribute.t
    return tensors
