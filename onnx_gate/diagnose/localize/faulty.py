"""What a search for the node at fault comes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.graph.graph import Node
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array

NO_NODE = (
    "no node alone is off by more than rounding, measured by its largest values: the error is that "
    "of many roundings, of small values, or of the inputs"
)


@dataclass(frozen=True)
class FaultyNode:
    """A node, the output that is wrong and the value that PyTorch has for it."""

    node: Node
    value: str
    traced: TracedValue


@dataclass(frozen=True)
class WrongConstant:
    """A value ``name`` that a graph makes of its constants, and that is not PyTorch's ``right``.

    ``of`` are the names of the module's tensors that PyTorch's is made of: the one that it is where the
    module holds it so (``is_held``). ``instead`` are those of another value of PyTorch's, which it is.
    """

    name: str
    own: Array
    right: Array
    of: tuple[str, ...]
    is_held: bool
    instead: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """What is known of the node at fault; each step of the search knows more.

    ``faulty`` is a node of the graph itself, ``lowering`` the nodes that compute its value together
    of what PyTorch has, and ``inside`` the one that it comes down to: among these, or in the body
    of a loop or a branch. ``missing`` are the results of operators that the graph has not, in
    order, before ``faulty`` or behind it: these are at fault then. ``constant`` is what a node of the
    lowering reads that is wrong before any input comes to it, ``exchanged`` two nodes that PyTorch has
    in the other order. ``candidates`` are all the values that
    disagree, in order; ``is_shown`` unless it may be another of the lowering. ``values`` are those
    that nodes read (PyTorch's where it has them), ``traced`` PyTorch's by the graph's names and
    ``local_error`` the errors of single nodes. ``notes`` say what could not be found out.
    """

    trace: Trace = field(default_factory=Trace)
    faulty: FaultyNode | None = None
    lowering: tuple[Node, ...] = ()
    inside: FaultyNode | None = None
    is_shown: bool = True
    missing: tuple[TracedValue, ...] = ()
    constant: WrongConstant | None = None
    exchanged: tuple[Node, Node] | None = None
    candidates: tuple[FaultyNode, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    traced: Mapping[str, TracedValue] = field(default_factory=dict)
    local_error: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def noting(self, note: str) -> SearchResult:
        """Return the same with one more note."""
        return dataclasses.replace(self, notes=(*self.notes, note))


def without_value(traced: TracedValue | None = None) -> TracedValue:
    """Return a traced value of which there is no array, of the same origin as ``traced``."""
    if traced is None:
        return TracedValue(-1, np.zeros(0), "")
    return dataclasses.replace(traced, number=-1, array=np.zeros(0))
