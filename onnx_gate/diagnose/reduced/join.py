"""Which value of a quantised graph is which of PyTorch's: by what they are, whatever their names."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.localize.matching import bare_name
from onnx_gate.diagnose.reduced.quantised import RESTORING, QuantisedGraph
from onnx_gate.diagnose.trace.trace import INPUT, Trace, TracedValue
from onnx_gate.graph.graph import Graph
from onnx_gate.graph.run_node import run_until
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array

# A value of the graph is one of PyTorch's where the noise between them has at most half the signal's
# power (3 dB: what has nothing to do with it has twice its power, or all of it where it is silent), and
# where no other value of the graph is nearer to it by more than a fifth of the noise.
_ALIKE_DB = 3.0
_NEARER_DB = 1.0
# The result of a product that is the same but for its scale may be one with a wrong scale. It counts as
# one with four times the noise, so that a value of the right scale goes before it.
_SCALED_DB = 12.0
# Of equal values, for which there is no number: more than the 144 dB that float32 can tell apart.
_SAME_DB = 200.0
# Steps from a value to what rounding it to a range can stand in for: the ReLU behind a product.
CUT_OFF = 2
# Elements by which values are joined.
_SAMPLES = 4096


_ADDITIONS = ("Add", "QLinearAdd")
_PRODUCTS = ("mm", "linear", "conv", "lstm", "gru")
_PLUMBING = frozenset(
    {"view", "unsafeview", "reshape", "transpose", "t", "permute", "squeeze", "unsqueeze"}
)


def join(walk: QuantisedGraph, feeds: Mapping[str, Value], deadline: Deadline) -> dict[str, float]:
    """Fill in ``walk.traced``; return the noise of each value with all that it inherits, in dB."""
    likenesses: dict[str, list[tuple[float, TracedValue]]] = {}
    nearest: dict[int, float] = {}
    own: dict[str, Array] = {}
    theirs: dict[int, Array] = {}

    def sampled(traced: TracedValue) -> Array:
        if traced.number not in theirs:
            theirs[traced.number] = samples(traced.array)
        return theirs[traced.number]

    def look(name: str, value: Value) -> None:
        deadline.check()
        numbers = walk.number(name, value)
        if numbers is None or numbers.size < 2:
            return
        own[name] = samples(numbers)
        if walk.graph.producer[name].op_type in RESTORING or _lacks_a_bias(walk.graph, name):
            return
        for traced in walk.trace.alike(numbers):
            if not traced.depends_on_input:
                continue
            likeness, turned = snr(own[name], sampled(traced)), -math.inf
            if product_of(walk.trace, traced) is not None:
                turned = likeness_of_direction(own[name], sampled(traced))
                likeness = max(likeness, turned - _SCALED_DB)
            likeness = min(likeness, _SAME_DB)
            if likeness >= _ALIKE_DB - (_SCALED_DB if turned >= _ALIKE_DB else 0.0):
                likenesses.setdefault(name, []).append((likeness, traced))
                nearest[traced.number] = max(nearest.get(traced.number, -math.inf), likeness)

    def restored(name: str, before: TracedValue) -> TracedValue:
        """Return what is rounded: the value itself, or what cutting it off makes of it."""
        others = (walk.trace[n] for n in walk.trace.children(before.number, CUT_OFF))
        alike = (each for each in others if sampled(each).shape == own[name].shape)
        return max(
            (before, *alike),
            key=lambda each: (likeness_of_direction(own[name], sampled(each)), -each.number),
        )

    run_until(walk.runner, feeds, walk.graph.outputs, look=look)
    for traced in walk.trace:
        if traced.operator.startswith(INPUT):
            given = traced.operator.removeprefix(INPUT)
            walk.traced[walk.inputs.get(given, given)] = traced
    for name in own:
        node, rows = walk.graph.producer[name], likenesses.get(name, [])
        if node.op_type in RESTORING:
            before = walk.traced.get(node.proto.input[0])
            if before is not None:
                walk.traced[name] = restored(name, before)
        elif rows:
            likeness, traced = max(rows, key=lambda row: (row[0], -row[1].number))
            if likeness >= nearest[traced.number] - _NEARER_DB:
                walk.traced[name] = traced
    return {
        name: snr(own[name], sampled(traced)) for name, traced in walk.traced.items() if name in own
    }


def _lacks_a_bias(graph: Graph, name: str) -> bool:
    """Return whether all that is done with a value is to add a constant to it.

    PyTorch has the sum alone, and to that it is near.
    """
    readers = graph.readers.get(name, ())
    return bool(readers) and all(
        all(_lacks_a_bias(graph, output) for output in node.outputs)
        if node.op_type in RESTORING
        else node.op_type in _ADDITIONS and len(graph.depends_on_input(node)) == 1
        for node in readers
    )


def product_of(trace: Trace, traced: TracedValue, steps: int = 0) -> TracedValue | None:
    """Return the product with weights that a value is the result of, in whatever shape.

    ``steps``: so many operators (a ReLU) may lie between.
    """
    while True:
        if any(word in traced.operator for word in _PRODUCTS):
            return traced
        if bare_name(traced.operator) not in _PLUMBING:
            steps -= 1
        if steps < 0 or len(traced.parents) != 1:
            return None
        traced = trace[traced.parents[0]]


def snr(actual: Array, expected: Array) -> float:
    """Return the signal to noise in dB: infinite without noise, minus infinite beside infinities."""
    a, e = np.asarray(actual).reshape(-1), np.asarray(expected).reshape(-1)
    if a.size != e.size:
        return -math.inf
    a, e = a.astype(np.float64), e.astype(np.float64)
    with np.errstate(all="ignore"):
        noise = np.where(a == e, 0.0, a - e)
        power = float(np.square(noise[np.isfinite(e)]).sum())
        signal = float(np.square(e[np.isfinite(e)]).sum())
    if power == 0:
        return math.inf
    if not math.isfinite(power) or signal == 0:
        return -math.inf
    return 10 * math.log10(signal / power)


def likeness_of_direction(actual: Array, expected: Array) -> float:
    """Return the signal to noise at the scale at which two values are nearest, in dB."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    a, e = actual[finite], expected[finite]
    power = float(a @ a) * float(e @ e)
    if power == 0 or not math.isfinite(power):
        return -math.inf
    cosine = float(a @ e) / math.sqrt(power)
    if cosine <= 0:
        return -math.inf
    return -10 * math.log10(max(1 - cosine * cosine, 1e-20))


def samples(array: Array) -> Array:
    """Return some elements in float64, of two arrays of one shape the same ones."""
    flat = np.asarray(array).reshape(-1)
    some: Array = flat[:: flat.size // _SAMPLES + 1].astype(np.float64)
    return some
