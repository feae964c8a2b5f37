"""Inside a faulty If, Loop or Scan: the node of its body that is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import FaultyNode, SearchResult
from onnx_gate.diagnose.localize.matching import SearchScope
from onnx_gate.diagnose.localize.search import Search
from onnx_gate.graph.graph import Graph
from onnx_gate.runtimes.base import Array


def search_body(divergence: Divergence, result: SearchResult) -> SearchResult:
    """Return the result with the faulty node of the branch taken, or of a loop's first round."""
    faulty = result.inside
    if faulty is None:
        return result
    inner = _search_body(divergence, result, faulty)
    return result if inner is None else dataclasses.replace(result, inside=inner)


def _search_body(
    divergence: Divergence, result: SearchResult, faulty: FaultyNode
) -> FaultyNode | None:
    runner = divergence.runner
    bodies = dict(runner.graph.bodies(faulty.node))
    if not bodies:
        return None
    read = {name: runner.value(name, result.values) for name in faulty.node.inputs}
    if faulty.node.op_type == "If":
        condition = read.get(faulty.node.proto.input[0])
        if not isinstance(condition, np.ndarray):
            return None
        body = bodies["then_branch" if bool(condition.item()) else "else_branch"]
        feeds = dict(read)
    elif faulty.node.op_type == "Loop":
        body = bodies["body"]
        state = [read.get(name) for name in faulty.node.proto.input[2:]]
        first = [np.array(0, np.int64), np.array(True), *state]
        feeds = {**read, **dict(zip(body.inputs, first, strict=False))}
    else:
        return None
    search = Search(
        SearchScope(
            runner.inside(body),
            feeds,
            _expected_outputs(faulty, body),
            result.trace,
            divergence.store,
            divergence.deadline,
        )
    )
    search.matching.substitute_reference()
    return search.find()


def _expected_outputs(faulty: FaultyNode, body: Graph) -> dict[str, Array | None]:
    """Return what the body's outputs have to be: known for a branch, not for one round of many."""
    if faulty.node.op_type != "If":
        return dict.fromkeys(body.outputs)
    index = list(faulty.node.proto.output).index(faulty.value)
    return {body.outputs[index]: faulty.traced.array}
