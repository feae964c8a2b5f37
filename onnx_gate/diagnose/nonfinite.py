"""Where NaN or an infinity comes from that the file answers and the other side does not.

From the output back: of what a node reads, that is followed without which its result is a number. What
is at the end has made it of numbers.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_gate.graph.graph import Node, read_graph
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.report.model.diagnosis import Nonfinite
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.subject import Subject


def first_nonfinite(subject: Subject) -> Nonfinite | None:
    """Return the node of the file that makes NaN or an infinity of numbers, which the worst element is.

    ``None`` where the other side has none there, or the file has it from its inputs or its constants.
    """
    worst = subject.check.worst
    if worst is None or math.isfinite(worst.actual) or not math.isfinite(worst.expected):
        return None
    graph = read_graph(subject.exported.proto, subject.exported.path)
    if subject.output >= len(graph.outputs):
        return None
    runner = Runner(graph, subject.plain_runtime, subject.folder)
    values = dict[str, Value](subject.feeds())
    output = graph.outputs[subject.output]
    for node in graph.ancestors([output]):
        if not all(map(graph.is_constant, node.outputs)):
            values.update(runner.run(node, values))
    return _Walk(runner, values).back(output)


def told_of_nonfinite(found: Nonfinite) -> str:
    """Return a sentence on what makes NaN or an infinity of what."""
    of = " and ".join(f"{number:.4g}" for number in found.of)
    return f"{found.op_type} of the file makes {found.made:g} of {of or 'numbers'}"


class _Walk:
    def __init__(self, runner: Runner, values: dict[str, Value]) -> None:
        self._runner, self._values = runner, values

    def back(self, name: str) -> Nonfinite | None:
        """Follow a value that is not finite to where it is made of numbers."""
        graph, nan = self._runner.graph, None
        while True:
            node = graph.producer.get(name)
            made = self._floats(name)
            if node is None or made is None:
                return nan
            read = [
                (n, a) for n in dict.fromkeys(node.inputs) if (a := self._floats(n)) is not None
            ]
            lost = [n for n, a in read if not np.isfinite(a).all()]
            if np.isnan(made).any() and not any(np.isnan(a).any() for _, a in read):
                nan = self._of(node, name, made)
            if not lost:
                return self._of(node, name, made)
            # Infinities that somebody wrote, as into a mask, were not made of anything.
            follow = [n for n in lost if n in graph.producer and not graph.is_constant(n)]
            name = next((n for n in follow if self._decides(node, name, n)), "")
            if not name:
                return nan

    def _decides(self, node: Node, name: str, read: str) -> bool:
        """Return whether a node makes more numbers once what it reads there are numbers."""
        value, made = self._values[read], self._floats(name)
        changed = np.where(np.isfinite(np.asarray(value, np.float64)), value, 1).astype(value.dtype)
        other = self._runner.run(node, {**self._values, read: changed}).get(name)
        if made is None or not isinstance(other, np.ndarray) or other.shape != made.shape:
            return False
        return int((~np.isfinite(other.astype(np.float64))).sum()) < int((~np.isfinite(made)).sum())

    def _floats(self, name: str) -> Array | None:
        """Return a value in float64, ``None`` where it has no floating-point numbers."""
        value = self._runner.value(name, self._values)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fV" or not value.size:
            return None
        return value.astype(np.float64)

    def _of(self, node: Node, name: str, made: Array) -> Nonfinite:
        lost = np.isnan(made) if np.isnan(made).any() else ~np.isfinite(made)
        place = tuple(int(i) for i in np.argwhere(lost)[0])
        operands = []
        for each in node.proto.input:
            value = self._floats(each)
            try:
                operands.append(float(np.broadcast_to(value, made.shape)[place]))  # type: ignore[arg-type]
            except (ValueError, TypeError):
                operands = []
                break
        return Nonfinite(
            name=node.proto.name,
            op_type=node.op_type,
            output=name,
            dtype=str(self._values[name].dtype),
            made=float(made[place]),
            of=tuple(operands),
        )
