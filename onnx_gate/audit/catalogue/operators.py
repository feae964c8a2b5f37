"""Faults of operators: another attribute, another constant, another operator of the same form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import (
    Edits,
    FaultSite,
    Seeding,
    exchanged_attribute,
    in_place,
    replaced,
    whole,
)
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_attribute, without_attributes
from onnx_gate.graph.walk import attribute

# The epsilons that norms are written with: 1e-12 of BERT to 1e-3 of MobileNet.
_EPSILONS = (1e-13, 2e-3)


def _epsilon(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    words = f"its epsilon is {site.size:g} times what it was"
    if node.op_type == "Add":
        array = graph.array(node.input[site.operand]).astype(np.float64)
        return replaced(graph, site, array * site.size, words)
    value = attribute(node, "epsilon", 1e-5)
    return in_place(site, with_attribute(node, "epsilon", value * site.size), words)


def _added_epsilons(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """The operand of an addition that looks like a norm's epsilon; a norm's node has its own."""
    if node.op_type != "Add":
        yield 0
        return
    for operand, name in enumerate(node.input):
        value = graph.scalar(name)
        if value is not None and _EPSILONS[0] < value < _EPSILONS[1]:
            yield operand


def _rank(graph: FlatGraph, node: onnx.NodeProto) -> int:
    return len(graph.dims(node.input[0]) or ())


def _matrix(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    return (0,) if _rank(graph, node) > 1 else ()


def _axis(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    old = attribute(node, "axis", 0 if node.op_type.startswith("Arg") else -1) % _rank(graph, node)
    new = old - 1 if old else 1
    return in_place(site, with_attribute(node, "axis", new), f"its axis is {new} instead of {old}")


def _slope(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    old = attribute(node, "alpha", 1.0 if node.op_type == "Elu" else 0.01)
    new = old * site.size
    return in_place(site, with_attribute(node, "alpha", new), f"its slope is {new:g}, not {old:g}")


def _finite_bounds(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    for operand, name in enumerate(node.input):
        value = graph.scalar(name)
        if operand and value is not None and abs(value) < 1e6:
            yield operand


def _bound(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    array = graph.array(graph.nodes[site.index].proto.input[site.operand]).astype(np.float64)
    old = float(array.reshape(-1)[0])
    new = old + (site.size if site.operand == 2 else -site.size)
    side = "upper" if site.operand == 2 else "lower"
    return replaced(graph, site, np.full_like(array, new), f"its {side} bound is {new:g}")


def _scalars(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    for operand, name in enumerate(node.input):
        others = [n for i, n in enumerate(node.input) if i != operand]
        if graph.is_float(name) and graph.count(name) == 1 and all(map(graph.is_computed, others)):
            yield operand


def _scale(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    array = graph.array(graph.nodes[site.index].proto.input[site.operand]).astype(np.float64)
    words = f"the number that it scales by is {site.size:.3g} times what it was"
    return replaced(graph, site, array * site.size, words)


def _become(op_type: str, words: str, **attributes: Any) -> Edits:
    """Return an edit that makes another operator of a node, with these attributes alone."""

    def edit(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
        old = graph.nodes[site.index].proto
        new = helper.make_node(op_type, list(old.input), list(old.output), old.name, **attributes)
        return in_place(site, new, words)

    return edit


def _left_out(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    same = helper.make_node("Identity", [node.input[0]], [node.output[0]])
    return in_place(site, same, "it is left out")


def _largest(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = without_attributes(graph.nodes[site.index].proto)
    node.op_type = "ReduceMax"
    return in_place(site, node, "it takes the largest, not the mean")


def _constant_axes(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    """The stored axes of a reduction, all of which have one before them."""
    names = node.input[1:2]
    stored = [name for name in names if graph.is_stored(name) and graph.count(name)]
    rank = _rank(graph, node)
    return [1 for name in stored if rank and np.all(graph.array(name) % rank > 0)]


def _axes_before(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    array = graph.array(node.input[1])
    old, new = (sorted((array % _rank(graph, node) - n).tolist()) for n in (0, 1))
    return replaced(graph, site, np.asarray(new), f"its axes are {new}, not {old}")


def _swapped_axes(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """Axes of a transposition that could be left where they are, as a reshape comes next."""
    perm = attribute(node, "perm") or ()
    readers = graph.readers.get(node.output[0], [])
    if readers and all(each.op_type == "Reshape" for each in readers):
        yield from (i for i, (a, b) in enumerate(pairwise(perm)) if a > b)


def _leave_axes(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    perm = list(attribute(node, "perm"))
    i = site.operand
    perm[i], perm[i + 1] = perm[i + 1], perm[i]
    words = f"its axes {i} and {i + 1} are not exchanged before they are flattened"
    return in_place(site, with_attribute(node, "perm", perm), words)


SEEDINGS = {
    "epsilon": Seeding(_added_epsilons, _epsilon),
    "momentum": Seeding(
        whole, exchanged_attribute("its momentum is {new}", "momentum", {None: 1.0}, 0.9)
    ),
    "gelu-formula": Seeding(
        whole,
        exchanged_attribute(
            "it is computed by {new}", "approximate", {"none": "tanh", "tanh": "none"}, "none"
        ),
    ),
    "axis": Seeding(_matrix, _axis),
    "slope": Seeding(whole, _slope),
    "bound": Seeding(_finite_bounds, _bound),
    "scale": Seeding(_scalars, _scale),
    "relu-leaky": Seeding(
        whole, _become("LeakyRelu", "it lets a hundredth of what is negative through", alpha=0.01)
    ),
    "activation-missing": Seeding(whole, _left_out),
    "sigmoid-hard": Seeding(
        whole, _become("HardSigmoid", "it is made of straight lines", alpha=1 / 6, beta=0.5)
    ),
    "axes-reduced": Seeding(_constant_axes, _axes_before),
    "mean-largest": Seeding(whole, _largest),
    "axes-flattened": Seeding(_swapped_axes, _leave_axes),
}
