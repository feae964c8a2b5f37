"""A graph with quantised values, beside what PyTorch has: which number a quantised value stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.diagnose.values import kind_of
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array

RESTORING = ("QuantizeLinear", "DequantizeLinear")
# Where an operator with a quantised result has the scale of it, and behind it the zero point.
RESULT_SCALE: Mapping[str, int] = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QGemm": 7,
    "QLinearSoftmax": 3,
    "QLinearSigmoid": 3,
    "QLinearLeakyRelu": 3,
    "QLinearAveragePool": 3,
    "QLinearGlobalAveragePool": 3,
    "QLinearReduceMean": 3,
    "QLinearConcat": 0,
}
# These hand on a quantised value's scale with the value.
_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "MaxPool", "Flatten"})


@dataclass(frozen=True)
class Scale:
    """What a quantised value's integers stand for."""

    scale: Array
    zero: Array

    def numbers(self, array: Array) -> Array:
        """Return the numbers, in float64."""
        numbers: Array = (array.astype(np.float64) - self.zero.astype(np.float64)) * self.scale
        return numbers

    def quantised(self, array: Array) -> Array:
        """Return the integers that stand for numbers, cut off at the dtype's ends."""
        dtype = self.zero.dtype
        limits = np.iinfo(dtype)
        steps = np.rint(array.astype(np.float64) / self.scale) + self.zero
        quantised: Array = np.clip(steps, limits.min, limits.max).astype(dtype)
        return quantised


@dataclass
class QuantisedGraph:
    """The graph with what PyTorch has: ``traced`` by the graph's names, and ``scales``.

    ``sums`` are sums of integers that were made floating-point, and have no scale yet.
    """

    graph: Graph
    runner: Runner
    trace: Trace
    inputs: Mapping[str, str]
    traced: dict[str, TracedValue] = field(default_factory=dict)
    scales: dict[str, Scale] = field(default_factory=dict)
    sums: set[str] = field(default_factory=set)

    def number(self, name: str, value: Value) -> Array | None:
        """Return the numbers that a value stands for, ``None`` where it stands for none."""
        if not isinstance(value, np.ndarray) or name in self.sums:
            return None
        if kind_of(value) == "f":
            return value
        scale = self.scale(name)
        if scale is None:
            self.sums |= {o for n in self.graph.readers.get(name, ()) for o in _cast(n)}
        return None if scale is None else scale.numbers(value)

    def scale(self, name: str) -> Scale | None:
        """Return the scale of a quantised value, ``None`` where that is not fixed."""
        if name not in self.scales:
            node = self.graph.producer.get(name)
            if node is None:
                return None
            if node.op_type in _MOVES:
                return self.scale(node.proto.input[0])
            index = RESULT_SCALE.get(node.op_type)
            if index is None or len(node.proto.input) <= index:
                return None
            read = [self.runner.value(n, {}) for n in node.proto.input[index : index + 2] if n]
            if not read or not all(isinstance(v, np.ndarray) and v.size == 1 for v in read):
                return None
            zero = read[1] if len(read) > 1 else np.zeros((), np.uint8)
            self.scales[name] = Scale(read[0].astype(np.float64), zero)
        return self.scales[name]

    def reference(self, name: str) -> Array | None:
        """Return PyTorch's value of one, as the graph stores it; ``None`` where it has none."""
        traced = self.traced.get(name)
        scale = self.scale(name)
        if traced is None or scale is None:
            return None if traced is None else traced.array
        return scale.quantised(traced.array)

    def is_read_quantised(self, name: str) -> bool:
        """Return whether all that read a value round it first, so that its cost is not all known."""
        readers = self.graph.readers.get(name, ())
        return (
            name not in self.graph.outputs
            and bool(readers)
            and all(node.op_type == "QuantizeLinear" for node in readers)
        )


def is_restored(graph: Graph, name: str) -> bool:
    """Return whether all that read a quantised value make numbers of it first."""
    readers = graph.readers.get(name, ())
    return bool(readers) and all(node.op_type == "DequantizeLinear" for node in readers)


def _cast(node: Node) -> tuple[str, ...]:
    return node.outputs if node.op_type == "Cast" else ()
