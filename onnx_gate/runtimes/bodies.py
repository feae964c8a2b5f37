"""The graphs that nodes run: the branches of If, the bodies of Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, NodeProto


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that a node runs."""
    for each in node.attribute:
        if each.HasField("g"):
            yield each.g
        yield from each.graphs
