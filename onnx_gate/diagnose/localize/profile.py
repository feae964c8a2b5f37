"""The errors along a graph, as a table can show them: all near the guilty node, the rest thinned."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_gate.diagnose.graph.run_graph import run_until
from onnx_gate.diagnose.graph.run_node import Runner
from onnx_gate.diagnose.graph.values import Value, distance
from onnx_gate.diagnose.localize.by_value import FaultyNode
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.report.model import NodeError
from onnx_gate.runtimes.base import Array

MOST = 200
# Rows on either side of the guilty node that are never left out.
_NEAR = 50


def ladder(
    runner: Runner,
    feeds: Mapping[str, Value],
    output: str,
    expected: Array,
    moments: Mapping[str, TracedValue],
    local_error: Mapping[str, float],
    guilty: FaultyNode | None,
    origins: Origins,
) -> tuple[NodeError, ...]:
    """Return the error that has accumulated at every value that PyTorch has too, in order.

    ``local_error`` are the errors of nodes run alone.
    """
    errors: dict[str, float] = {}

    def look(name: str, value: Value) -> None:
        if name == output:
            errors[name] = distance(value, expected)
        elif name in moments:
            errors[name] = distance(value, moments[name].array)

    run_until(runner, feeds, [output], look=look)
    rows: list[NodeError] = []
    place = 0
    for name, error in errors.items():
        node = runner.graph.producer[name]
        if guilty is not None and node.index <= guilty.node.index:
            place = len(rows)
        rows.append(
            NodeError(
                name=node.proto.name,
                op_type=node.op_type,
                output=name,
                module=origins.module(node, name, moments.get(name)),
                error=error,
                born=local_error.get(name),
            )
        )
    return tuple(rows[i] for i in _chosen(len(rows), place))


def _chosen(count: int, place: int) -> list[int]:
    if count <= MOST:
        return list(range(count))
    near = set(range(max(0, place - _NEAR), min(count, place + _NEAR + 1)))
    rest = [i for i in range(count) if i not in near]
    step = -(-len(rest) // (MOST - len(near)))
    return sorted(near | set(rest[::step]) | {count - 1} if step else near)
