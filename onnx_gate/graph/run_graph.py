"""Run a graph node by node, holding no value longer than it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value


def run_until(
    runner: Runner,
    feeds: Mapping[str, Value],
    outputs: Iterable[str],
    overrides: Mapping[str, Any] | None = None,
    look: Callable[[str, Value], None] | None = None,
) -> dict[str, Value]:
    """Return the values ``outputs``; ``overrides`` take the place of what nodes compute.

    ``look`` sees every value, before it is overridden.
    """
    graph, wanted = runner.graph, tuple(outputs)
    nodes = [n for n in graph.ancestors(wanted) if not all(map(graph.is_constant, n.outputs))]
    last = {name: node.index for node in nodes for name in node.inputs}
    last |= dict.fromkeys(wanted, len(graph.nodes))
    values: dict[str, Value] = dict(feeds)
    for node in nodes:
        for name, value in runner.run(node, values).items():
            if look is not None:
                look(name, value)
            replacement = overrides.get(name) if overrides else None
            kept = value if replacement is None else _as(replacement, value)
            if name in last:
                values[name] = kept
        for name in node.inputs:
            if last.get(name) == node.index:
                values.pop(name, None)
    return {name: runner.value(name, values) for name in wanted}


def _as(replacement: Any, value: Value) -> Any:
    """Return a replacement in the dtype that the nodes behind expect."""
    if hasattr(value, "dtype") and value.dtype != replacement.dtype:
        return replacement.astype(value.dtype)
    return replacement
