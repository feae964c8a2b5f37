"""An output that is PyTorch's but for its dtype: the node at which the graph turns to another.

Values cannot tell it, as each is as near to PyTorch's as its own dtype allows. The dtypes along the
graph can: back from the output, past everything that hands on the dtype that it reads.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import FaultyNode, SearchResult, without_value
from onnx_gate.diagnose.trace.record_module import record_module
from onnx_gate.diagnose.trace.trace import Trace
from onnx_gate.graph.run_graph import run_until
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Refusal


def search_by_dtype(divergence: Divergence) -> SearchResult:
    """Return the node that first has the output's dtype, of those that hand it on to the output."""
    dtypes = {name: value.dtype for name, value in divergence.feeds.items()}

    def look(name: str, value: Value) -> None:
        if isinstance(value, np.ndarray):
            dtypes[name] = value.dtype

    run_until(divergence.runner, divergence.feeds, [divergence.output], look=look)
    graph, name = divergence.graph, divergence.output
    node = graph.producer.get(name)
    result = SearchResult(Trace())
    if node is None:
        return result.noting("the output is an input of the graph")
    while True:
        alike = [i for i in graph.depends_on_input(node) if dtypes.get(i) == dtypes.get(name)]
        before = graph.producer.get(alike[0]) if alike else None
        if before is None:
            break
        name, node = alike[0], before
    subject = divergence.subject
    with suppress(Refusal):
        record_module(
            subject.eager, subject.arrays, result.trace, divergence.store, subject.workspace
        )
    equal = result.trace.find(divergence.expected)
    traced = without_value(equal[0] if equal else None)
    if name == divergence.output and equal:
        traced = equal[0]
    faulty = FaultyNode(node, name, traced)
    result = SearchResult(result.trace, faulty=faulty, inside=faulty)
    return result.noting(
        f"the output is {dtypes.get(divergence.output)} where {subject.spec.against} has "
        f"{divergence.expected.dtype}"
    )
