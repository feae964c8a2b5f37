"""What 16-bit results are before they are rounded: numbers that the graph itself returns.

Each watched value becomes a few scalars beside it. Those of a body leave it as outputs of the node that
runs it: of ``If`` the branch that is not taken gives zeros, of ``Loop`` and ``Scan`` the largest of all
iterations counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

# What divides a sum, whose result says nothing of it; AveragePool's windows are as large as its kernel.
_MEANS = ("ReduceMean", "GlobalAveragePool", "AveragePool")


@dataclass(frozen=True)
class Watched:
    """A 16-bit result: the node that makes it, and what it is in float32, before it is rounded."""

    name: str
    node: NodeProto
    wide: str
    dtype: int


@dataclass(frozen=True)
class Scalars:
    """The scalars of a watched value, by name: its ``largest`` magnitude, and the ``share`` below the
    least normal number; of a mean the largest ``total`` that it divides."""

    watched: Watched
    largest: str
    share: str
    total: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.largest, self.share, self.total)))


def least_of(dtype: int) -> str:
    """Return the name of the initializer that holds the least normal number of a dtype."""
    return f"__least{dtype}"


def measuring(watched: Watched, given: str, base: str) -> tuple[list[NodeProto], Scalars]:
    """Return the nodes that measure a value; ``given`` is the first input of what computes it.

    ``base`` is what all names begin with.
    """
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Abs", [watched.wide], "size", {}),
        ("ReduceMax", [f"{base}size"], "largest", {"keepdims": 0}),
        ("Less", [f"{base}size", least_of(watched.dtype)], "low", {}),
        ("Cast", [f"{base}size"], "some", {"to": TensorProto.BOOL}),
        ("And", [f"{base}low", f"{base}some"], "lost", {}),
        ("Cast", [f"{base}lost"], "ones", {"to": TensorProto.FLOAT}),
        ("ReduceMean", [f"{base}ones"], "share", {"keepdims": 0}),
    ]
    if watched.node.op_type in _MEANS:
        steps += _terms(watched, given, base)
        steps.append(("Mul", [f"{base}largest", f"{base}terms"], "total", {}))
    nodes = [
        helper.make_node(op, read, [f"{base}{made}"], **more) for op, read, made, more in steps
    ]
    total = f"{base}total" if watched.node.op_type in _MEANS else ""
    return nodes, Scalars(watched, f"{base}largest", f"{base}share", total)


def _terms(
    watched: Watched, given: str, base: str
) -> list[tuple[str, list[str], str, dict[str, Any]]]:
    """Return the steps to how many values each mean is of."""
    kernel = next((a.ints for a in watched.node.attribute if a.name == "kernel_shape"), None)
    if kernel is not None:
        value = helper.make_tensor("terms", TensorProto.FLOAT, [], [float(np.prod(kernel))])
        return [("Constant", [], "terms", {"value": value})]
    return [
        ("Size", [given], "all", {}),
        ("Size", [watched.wide], "kept", {}),
        ("Div", [f"{base}all", f"{base}kept"], "of", {}),
        ("Cast", [f"{base}of"], "terms", {"to": TensorProto.FLOAT}),
    ]


def lifted(
    node: NodeProto, inside: Sequence[tuple[GraphProto, Sequence[Scalars]]]
) -> tuple[list[NodeProto], list[Scalars]]:
    """Let the scalars of a node's bodies out, as further outputs of it.

    Returns the nodes that belong behind it, and the scalars by their names outside.
    """
    if node.op_type not in ("If", "Loop", "Scan"):
        return [], []
    after: list[NodeProto] = []
    found: list[Scalars] = []
    for body, measured in inside:
        for each in measured:
            outside = {name: f"{name}__out" for name in each.names}
            for name, out in outside.items():
                if node.op_type == "If":
                    _returned(body, name)
                    for other, _ in inside:
                        if other is not body:
                            _returned(other, name, zero=True)
                    node.output.append(out)
                else:
                    after += _over_iterations(node, body, name, out)
            found.append(
                replace(
                    each,
                    largest=outside[each.largest],
                    share=outside[each.share],
                    total=outside.get(each.total, ""),
                )
            )
    return after, found


def _returned(body: GraphProto, name: str, *, zero: bool = False) -> None:
    if zero:
        value = helper.make_tensor(name, TensorProto.FLOAT, [], [0.0])
        body.node.append(helper.make_node("Constant", [], [name], value=value))
    body.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))


def _over_iterations(node: NodeProto, body: GraphProto, name: str, out: str) -> list[NodeProto]:
    given = len(body.output) - (1 if node.op_type == "Loop" else 0)  # whether to go on
    node.output.extend([""] * (given - len(node.output)))
    _returned(body, name)
    node.output.append(f"{out}each")
    for attribute in node.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            assert attribute.type == AttributeProto.INTS
            attribute.ints.append(0)
    zero = helper.make_tensor(out, TensorProto.FLOAT, [1], [0.0])
    return [
        helper.make_node("Constant", [], [f"{out}none"], value=zero),
        helper.make_node("Concat", [f"{out}none", f"{out}each"], [f"{out}all"], axis=0),
        helper.make_node("ReduceMax", [f"{out}all"], [out], keepdims=0),
    ]
