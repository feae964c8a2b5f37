"""Small faults: a limit, an exact value, a single row; most inputs never come where they show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from onnx_gate.audit.catalogue.wiring import stored_rows
from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import FaultSite, Seeding, in_place, replaced, whole
from onnx_gate.audit.graph import FlatGraph

_EQUAL_TOO = {
    "Less": "LessOrEqual",
    "LessOrEqual": "Less",
    "Greater": "GreaterOrEqual",
    "GreaterOrEqual": "Greater",
}


def _other_at_equals(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    old = graph.nodes[site.index].proto
    new = helper.make_node(_EQUAL_TOO[old.op_type], list(old.input), list(old.output), old.name)
    return in_place(site, new, f"it is {new.op_type}, which is another where both are equal")


def _limits(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    for operand, name in enumerate(node.input):
        if name and graph.is_stored(name) and graph.count(name) == 1:
            array = graph.array(name)
            if array.dtype.kind in "iuf" and abs(float(array.reshape(-1)[0])) < 1e6:
                yield operand


def _limit_off(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    array = graph.array(graph.nodes[site.index].proto.input[site.operand])
    old = array.reshape(-1)[0]
    new = old + 1 if array.dtype.kind in "iu" else old + site.size * max(abs(float(old)), 1.0)
    return replaced(graph, site, np.full_like(array, new), f"its limit is {new:g}, not {old:g}")


def _halves_away(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    old = graph.nodes[site.index].proto
    x, half, (y,) = old.input[0], f"{old.output[0]}__half", old.output
    names = [f"{y}__{part}" for part in ("size", "up", "floor", "sign")]
    size, up, floor, sign = names
    nodes = (
        helper.make_node("Abs", [x], [size]),
        helper.make_node("Add", [size, half], [up]),
        helper.make_node("Floor", [up], [floor]),
        helper.make_node("Sign", [x], [sign]),
        helper.make_node("Mul", [floor, sign], [y], old.name),
    )
    words = "it rounds halves away from zero, not to even numbers"
    return Edit(words, nodes={site.index: nodes}, tensors={half: np.asarray(0.5, np.float32)})


def _next_row(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    array = graph.array(graph.nodes[site.index].proto.input[0]).copy()
    row = int(random.integers(len(array) - 1)) if len(array) > 1 else 0
    array[row : row + 2] = array[row : row + 2][::-1].copy()
    return replaced(graph, site, array, f"its rows {row} and {row + 1} are exchanged")


SEEDINGS = {
    "limit-included": Seeding(whole, _other_at_equals),
    "limit-off": Seeding(_limits, _limit_off),
    "halves-away": Seeding(whole, _halves_away),
    "row-exchanged": Seeding(stored_rows, _next_row),
}
