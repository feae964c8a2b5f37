"""Faults of recurrent layers: the order of gates, what is reset first, the way through a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import FaultSite, Seeding, exchanged_attribute, whole
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_input
from onnx_gate.graph.walk import attribute

# Where the gates of ONNX's order are in PyTorch's: i, o, f, c of i, f, g, o; z, r, h of r, z, n.
_TORCH_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
_GATED = (1, 2, 3)
_STATES = (5, 6)


def _stored_gates(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    names = [name for name in node.input[1:4] if name]
    return (0,) if all(map(graph.is_float, names)) else ()


def _reorder(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    order, tensors = _TORCH_ORDER[node.op_type], {}
    for operand in _GATED:
        old = node.input[operand] if operand < len(node.input) else ""
        if old:
            array = graph.array(old)
            # A bias has the gates twice, of the input and of the state.
            gates = np.split(array, len(order) * (2 if operand == 3 else 1), axis=1)
            places = [*order, *(len(order) + each for each in order)][: len(gates)]
            name = f"{old}__faulty"
            tensors[name] = np.concatenate([gates[place] for place in places], axis=1)
            node = with_input(node, operand, name)
    return Edit(
        "its gates are in PyTorch's order, not ONNX's", nodes={site.index: (node,)}, tensors=tensors
    )


def _one_way(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    way = attribute(node, "direction", "forward")
    return (0,) if way in ("forward", "reverse") else ()


def _given_states(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    for operand in _STATES[: 2 if node.op_type == "LSTM" else 1]:
        name = node.input[operand] if operand < len(node.input) else ""
        if name and not graph.is_stored(name):
            yield operand


def _forget(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = with_input(graph.nodes[site.index].proto, site.operand, "")
    return Edit("a state that it begins with is ignored", nodes={site.index: (node,)})


SEEDINGS = {
    "gates-reordered": Seeding(_stored_gates, _reorder),
    "reset-before": Seeding(
        whole,
        exchanged_attribute(
            "linear_before_reset is {new}, not {old}", "linear_before_reset", {0: 1, 1: 0}, 0
        ),
    ),
    "direction": Seeding(
        _one_way,
        exchanged_attribute(
            "it reads {new}, not {old}",
            "direction",
            {"forward": "reverse", "reverse": "forward"},
            "forward",
        ),
    ),
    "state-ignored": Seeding(_given_states, _forget),
}
