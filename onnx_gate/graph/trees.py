"""Which inputs a graph's trees and tables of labels tell apart: their numbers are attributes of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import numpy_helper

from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.walk import attribute
from onnx_gate.runtimes.base import Array

_ML = "ai.onnx.ml"
_TREES = frozenset(("TreeEnsembleRegressor", "TreeEnsembleClassifier"))
# What passes on each number of its first input.
_PASSED = frozenset(("Cast", "Identity"))
_LEAF = "LEAF"
# Of so many leaves each is gone to: forests of a thousand trees with as many leaves each are sampled.
_MOST_LEAVES = 2**16


@dataclass(frozen=True)
class Boxes:
    """The boxes of leaves, by both ends of each feature, which lie in them: ``[leaves, features]``."""

    low: Array
    high: Array

    def corners(self, row: Array) -> Array:
        """Return rows that come to each leaf: the nearest to one, and those at both of its ends."""
        near = np.clip(row, self.low, self.high)
        ends = [np.where(np.isfinite(each), each, near) for each in (self.low, self.high)]
        corners: Array = np.concatenate((near, *ends)).astype(row.dtype)
        return corners


def boxes(graph: Graph, features: Mapping[str, int]) -> Iterator[tuple[str, Boxes]]:
    """Yield the inputs of a graph that its trees read, of so many ``features``, with their leaves."""
    for node in graph.nodes:
        if node.proto.domain == _ML and node.op_type in _TREES:
            name = _origin(graph, node.inputs[0])
            if name in features:
                yield name, _boxes(node, features[name])


def keys(graph: Graph) -> Iterator[tuple[str, Array]]:
    """Yield the inputs of a graph of which it looks up labels, with the keys of these."""
    for node in graph.nodes:
        if node.proto.domain == _ML and node.op_type == "LabelEncoder":
            for kind, dtype in (("keys_int64s", np.int64), ("keys_floats", np.float32)):
                found = attribute(node.proto, kind, ())
                if found:
                    yield _origin(graph, node.inputs[0]), np.array(found, dtype)
            tensor = attribute(node.proto, "keys_tensor")
            if tensor is not None:
                array = numpy_helper.to_array(tensor)
                if array.dtype.kind in "fi":
                    yield _origin(graph, node.inputs[0]), array.reshape(-1)


def _origin(graph: Graph, name: str) -> str:
    node = graph.producer.get(name)
    while node is not None and node.op_type in _PASSED:
        name = node.inputs[0]
        node = graph.producer.get(name)
    return name


def _boxes(node: Node, features: int) -> Boxes:
    """Follow every path of the trees, and cut the box of its leaf at each branch."""
    said = {each.name: attribute(node.proto, each.name) for each in node.proto.attribute}
    places = zip(said["nodes_treeids"], said["nodes_nodeids"], strict=True)
    at = {place: index for index, place in enumerate(places)}
    children = {
        index
        for each in ("nodes_truenodeids", "nodes_falsenodeids")
        for index in _below(said, at, each)
    }
    modes = [mode.decode() for mode in said["nodes_modes"]]
    wide = said.get("nodes_values_as_tensor")
    values = (
        np.array(said["nodes_values"], np.float32) if wide is None else numpy_helper.to_array(wide)
    )
    ends = np.full((2, features), [[-np.inf], [np.inf]], values.dtype)
    pending = [(index, ends) for index in at.values() if index not in children]
    found: list[Array] = []
    # A node of a tree has one parent; of what goes in circles nothing is gone to twice.
    ahead = set(at.values())
    while pending and len(found) < _MOST_LEAVES:
        index, box = pending.pop()
        if index not in ahead:
            continue
        ahead.remove(index)
        if modes[index] == _LEAF:
            found.append(box)
            continue
        feature, value = said["nodes_featureids"][index], values[index]
        for side, kind in ((True, "nodes_truenodeids"), (False, "nodes_falsenodeids")):
            cut = _cut(box, feature, modes[index], value, side)
            if (cut[0] <= cut[1]).all():
                pending.append((at[said["nodes_treeids"][index], said[kind][index]], cut))
    every = np.stack(found) if found else np.zeros((0, 2, features), values.dtype)
    return Boxes(every[:, 0], every[:, 1])


def _below(
    said: Mapping[str, Sequence[int]], at: Mapping[tuple[int, int], int], kind: str
) -> Iterator[int]:
    """Yield the nodes that branches lead to on one side."""
    for tree, child, mode in zip(
        said["nodes_treeids"], said[kind], said["nodes_modes"], strict=True
    ):
        if mode.decode() != _LEAF:  # type: ignore[attr-defined]
            yield at[tree, child]


def _cut(box: Array, feature: int, mode: str, value: Array, side: bool) -> Array:
    """Return what is left of a box on one side of a branch."""
    below, above = np.nextafter(value, [-np.inf, np.inf], dtype=value.dtype)
    lows = {"BRANCH_GTE": (value, below), "BRANCH_GT": (above, value)}
    highs = {"BRANCH_LEQ": (value, above), "BRANCH_LT": (below, value)}
    low, high = box[:, feature]
    if mode in highs:
        end, beyond = highs[mode]
        low, high = (low, min(high, end)) if side else (max(low, beyond), high)
    elif mode in lows:
        end, beyond = lows[mode]
        low, high = (max(low, end), high) if side else (low, min(high, beyond))
    elif (mode == "BRANCH_EQ") == side:
        low, high = max(low, value), min(high, value)
    cut = box.copy()
    cut[:, feature] = low, high
    return cut
