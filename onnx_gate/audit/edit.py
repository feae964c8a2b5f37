"""What a fault does to a graph, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx

from onnx_gate.graph.edit import with_nodes
from onnx_gate.runtimes.base import Array

# What a constant that stands in for another one of the graph is called by, behind its name.
CHANGED = "__faulty"
Feed = Callable[[Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True)
class Edit:
    """A change of a graph, or of what it is fed; ``words`` say what is wrong then.

    ``nodes`` maps the index of a node (in ``FlatGraph.nodes``) to what stands in its place, ``tensors``
    are constants under new names, ``renamed`` maps names of values, ``appended`` are nodes at the
    end. ``feed`` is applied to the graph's inputs, by their names there. ``same``: nothing is changed
    by it.
    """

    words: str
    nodes: Mapping[int, tuple[onnx.NodeProto, ...]] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    appended: tuple[onnx.NodeProto, ...] = ()
    feed: Feed | None = None
    same: bool = False

    @property
    def in_graph(self) -> bool:
        """Whether the graph is another one, and not only what it is fed."""
        return bool(self.nodes or self.renamed or self.appended)


def applied(model: onnx.ModelProto, edit: Edit) -> onnx.ModelProto:
    """Return a copy of a model with the change made, but for the values of ``tensors``."""
    return with_nodes(model, edit.nodes, edit.renamed, edit.appended)
