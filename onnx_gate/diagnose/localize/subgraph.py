"""Inside a guilty If, Loop or Scan: the node of its body that is wrong."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.graph.graph import Graph
from onnx_gate.diagnose.graph.run_node import Runner
from onnx_gate.diagnose.graph.values import Store, Value
from onnx_gate.diagnose.localize.by_value import FaultyNode, Search
from onnx_gate.diagnose.trace.trace import Trace
from onnx_gate.runtimes.base import Array


def search_body(
    runner: Runner,
    guilty: FaultyNode,
    values: Mapping[str, Value],
    pool: Trace,
    store: Store,
    deadline: Deadline,
) -> FaultyNode | None:
    """Return the guilty node of the branch taken, or of a loop's first round; ``None`` if unknown.

    ``values`` are those that the node reads.
    """
    bodies = dict(runner.graph.bodies(guilty.node))
    if not bodies:
        return None
    read = {name: runner.value(name, values) for name in guilty.node.inputs}
    if guilty.node.op_type == "If":
        condition = read.get(guilty.node.proto.input[0])
        if not isinstance(condition, np.ndarray):
            return None
        body = bodies["then_branch" if bool(condition.item()) else "else_branch"]
        feeds = dict(read)
    elif guilty.node.op_type == "Loop":
        body = bodies["body"]
        state = [read.get(name) for name in guilty.node.proto.input[2:]]
        first = [np.array(0, np.int64), np.array(True), *state]
        feeds = {**read, **dict(zip(body.inputs, first, strict=False))}
    else:
        return None
    search = Search(runner.inside(body), feeds, _anchors(guilty, body), pool, store, deadline)
    search.substitute_reference()
    return search.find()


def _anchors(guilty: FaultyNode, body: Graph) -> dict[str, Array | None]:
    """Return what the body's outputs have to be: known for a branch, not for one round of many."""
    expected_outputs: dict[str, Array | None] = dict.fromkeys(body.outputs)
    if guilty.node.op_type == "If":
        place = list(guilty.node.proto.output).index(guilty.value)
        expected_outputs = {body.outputs[place]: guilty.moment.array}
    return expected_outputs
