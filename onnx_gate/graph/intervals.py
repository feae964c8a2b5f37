"""Between which ends a value lies whatever the inputs are, as the operators before it prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.walk import attribute

Interval = tuple[float, float]

ANYWHERE: Interval = (-math.inf, math.inf)
_POSITIVE: Interval = (0.0, math.inf)
_SHARE: Interval = (0.0, 1.0)
_WAVE: Interval = (-1.0, 1.0)
# What operators make, whatever they are given.
_MADE: Mapping[str, Interval] = {
    **dict.fromkeys(("Exp", "Sqrt", "Softplus", "Size", "Shape", "NonZero"), _POSITIVE),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "GlobalLpPool"), _POSITIVE),
    **dict.fromkeys(("ArgMax", "ArgMin", "LpPool"), _POSITIVE),
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax", "Hardmax"), _SHARE),
    **dict.fromkeys(("Not", "And", "Or", "Xor", "Equal", "IsNaN", "IsInf"), _SHARE),
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _SHARE),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Sign", "Softsign"), _WAVE),
    "LogSoftmax": (-math.inf, 0.0),
}
# Their elements are elements of what these read first, or lie between such.
_HANDED_ON = frozenset(
    (
        *("Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand"),
        *("Slice", "Gather", "GatherElements", "GatherND", "Split", "Tile", "Compress", "Dropout"),
        *("ReduceMax", "ReduceMin", "ReduceMean", "TopK", "DepthToSpace", "SpaceToDepth"),
        *("MaxPool", "GlobalMaxPool", "GlobalAveragePool"),
    )
)
_JOINED = frozenset(("Concat", "Mean"))
# Sums of any number of elements, or products of them, have their sign.
_SUMMED = frozenset(("ReduceSum", "CumSum", "ReduceProd", "AveragePool", "Reciprocal"))
_ROUNDS: Mapping[str, Callable[[float], float]] = {
    "Floor": lambda end: math.floor(end) if math.isfinite(end) else end,
    "Ceil": lambda end: math.ceil(end) if math.isfinite(end) else end,
    "Round": lambda end: float(round(end)) if math.isfinite(end) else end,
}


def intervals(
    graph: Graph, values: Mapping[str, Any], given: Mapping[str, Interval] | None = None
) -> dict[str, Interval]:
    """Return between which ends each value of a graph lies; ``values`` has those of constants.

    Its inputs lie where they are ``given`` to.
    """
    known: dict[str, Interval] = {**(given or {})}

    def constant(name: str) -> Any:
        array = values.get(name) if graph.is_constant(name) else None
        if array is None and name in graph.constants:
            return graph.constants.array(name)
        return array

    def of(name: str) -> Interval:
        if name not in known:
            known[name] = _ends_of(constant(name))
        return known[name]

    for node in graph.nodes:
        made = _of_whole(graph, node, of, constant) or _made(node, of)
        for place, name in enumerate(node.outputs):
            if not graph.is_constant(name):
                # What else some operators make are places, and masks.
                known[name] = made if place == 0 or node.op_type == "Split" else ANYWHERE
    return known


def around(intervals: Iterable[Interval]) -> Interval:
    """Return the least interval that has all of some in it."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _ends_of(array: Any) -> Interval:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not array.size:
        return ANYWHERE
    low, high = float(array.min()), float(array.max())
    return ANYWHERE if math.isnan(low) else (low, high)


def _made(node: Node, of: Callable[[str], Interval]) -> Interval:
    """Return what a node makes, of what its inputs are."""
    op, names = node.op_type, [name for name in node.proto.input if name]
    if node.proto.domain not in ("", "ai.onnx"):
        return ANYWHERE
    if op in _MADE:
        return _MADE[op]
    if not names:
        return ANYWHERE
    given = [of(name) for name in names]
    low, high = given[0]
    if op in _HANDED_ON:
        return low, high
    if op == "Cast":
        return _cast(node, given[0])
    if op in _JOINED:
        return around(given)
    if op == "Pad":
        return around((given[0], given[2] if len(given) > 2 else (0.0, 0.0)))
    if op == "Where":
        return around(given[1:])
    if op in _ROUNDS:
        return _ROUNDS[op](low), _ROUNDS[op](high)
    if op in _SUMMED:
        return _signed(given[:1])
    if op in ("MatMul", "Mul") and names[0] != names[-1]:
        return _product(given) if op == "Mul" else _signed(given)
    return _by_arithmetic(node, names, given)


def _of_whole(
    graph: Graph, node: Node, of: Callable[[str], Interval], constant: Callable[[str], Any]
) -> Interval | None:
    """Return what quotients and remainders by a whole number are, ``None`` of another node.

    A remainder may be written out: a number less its quotient times the divisor.
    """

    def divisor(each: Node | None, place: int = 1) -> int:
        number = constant(each.inputs[place]) if each and len(each.inputs) == 2 else None
        if not isinstance(number, np.ndarray) or number.size != 1 or number.dtype.kind not in "iu":
            return 0
        return max(0, int(number.item()))

    if node.op_type == "Div" and (by := divisor(node)):
        low, high = (end / by for end in of(node.inputs[0]))
        return _towards_zero(low), _towards_zero(high)
    if node.op_type == "Mod" and (by := divisor(node)):
        low = of(node.inputs[0])[0]
        return (1.0 - by if low < 0 and attribute(node.proto, "fmod", 0) else 0.0), by - 1.0
    if node.op_type == "Sub" and len(node.inputs) == 2 and of(node.inputs[0])[0] >= 0:
        product = graph.producer.get(node.inputs[1])
        if product is not None and product.op_type == "Mul" and (by := divisor(product)):
            quotient = graph.producer.get(product.inputs[0])
            while quotient is not None and quotient.op_type in ("Cast", "Identity"):
                quotient = graph.producer.get(quotient.inputs[0])
            if quotient is not None and quotient.op_type == "Div" and divisor(quotient) == by:
                return (0.0, by - 1.0) if quotient.inputs[0] == node.inputs[0] else None
    return None


def _towards_zero(end: float) -> float:
    return float(math.trunc(end)) if math.isfinite(end) else end


def _by_arithmetic(node: Node, names: Sequence[str], given: Sequence[Interval]) -> Interval:
    op, (low, high) = node.op_type, given[0]
    other = given[-1]
    if op in ("Abs", "Mul"):  # a value by itself is its square
        return _POSITIVE if op == "Mul" or low < 0 else (low, high)
    if op == "Relu":
        return max(low, 0.0), max(high, 0.0)
    if op == "Neg":
        return -high, -low
    if op in ("Add", "Sum"):
        return sum(each[0] for each in given), sum(each[1] for each in given)
    if op == "Sub" and names[0] != names[1]:
        return low - other[1], high - other[0]
    if op == "Div":
        return _signed(given)
    if op == "Pow":
        even = other[0] == other[1] and other[0] % 2 == 0
        return _POSITIVE if even or low >= 0 else ANYWHERE
    if op == "Max":
        return max(each[0] for each in given), max(each[1] for each in given)
    if op == "Min":
        return min(each[0] for each in given), min(each[1] for each in given)
    if op == "Clip":
        return _clipped(node, given)
    return ANYWHERE


def _cast(node: Node, given: Interval) -> Interval:
    """Return what a value is in another type: one without a sign begins anew below zero."""
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node.proto, "to", 1))).kind
    if kind == "b":
        return _SHARE
    return _POSITIVE if kind == "u" and given[0] < 0 else given


def _clipped(node: Node, given: Sequence[Interval]) -> Interval:
    (low, high), rest = given[0], iter(given[1:])
    names = [*node.proto.input, "", ""]
    ends = [next(rest) if names[place] else ANYWHERE for place in (1, 2)]
    least = attribute(node.proto, "min", ends[0][0])
    most = attribute(node.proto, "max", ends[1][1])
    return min(max(low, least), most), max(min(high, most), least)


def _product(given: Sequence[Interval]) -> Interval:
    one, other = given
    ends = [0.0 if 0.0 in (a, b) else a * b for a in one for b in other]
    return min(ends), max(ends)


def _signed(given: Sequence[Interval]) -> Interval:
    """Return the sign of products and sums of values, all that is known where they are of any number."""
    if all(low >= 0 for low, _ in given):
        return _POSITIVE
    return (-math.inf, 0.0) if len(given) == 1 and given[0][1] <= 0 else ANYWHERE
