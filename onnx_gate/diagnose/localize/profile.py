"""The errors along a graph, as a table can show them: all near the faulty node, the rest thinned."""

from __future__ import annotations

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import SearchResult
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.diagnose.values import distance
from onnx_gate.graph.run_graph import run_until
from onnx_gate.graph.session import Value
from onnx_gate.report.model.diagnosis import NodeError

MOST = 200
# Rows on either side of the faulty node that are never left out.
_NEAR = 50


def error_profile(
    divergence: Divergence, result: SearchResult, origins: Origins
) -> tuple[NodeError, ...]:
    """Return the error that has accumulated at every value that PyTorch has too, in order."""
    errors: dict[str, float] = {}

    def look(name: str, value: Value) -> None:
        if name == divergence.output:
            errors[name] = divergence.error_of(value)
        elif name in result.traced:
            errors[name] = distance(value, result.traced[name].array)

    run_until(divergence.runner, divergence.feeds, [divergence.output], look=look)
    faulty = result.faulty or result.inside
    rows: list[NodeError] = []
    index = 0
    for name, error in errors.items():
        node = divergence.graph.producer[name]
        if faulty is not None and node.index <= faulty.node.index:
            index = len(rows)
        rows.append(
            NodeError(
                **origins.fields(node, name, result.traced.get(name)),
                error=error,
                born=result.local_error.get(name),
            )
        )
    return tuple(rows[i] for i in _chosen(len(rows), index))


def _chosen(count: int, index: int) -> list[int]:
    if count <= MOST:
        return list(range(count))
    near = set(range(max(0, index - _NEAR), min(count, index + _NEAR + 1)))
    rest = [i for i in range(count) if i not in near]
    step = -(-len(rest) // (MOST - len(near)))
    return sorted(near | set(rest[::step]) | {count - 1} if step else near)
