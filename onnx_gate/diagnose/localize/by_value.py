"""Find the first wrong node of a graph whose values have no names that PyTorch knows.

A committed file, one that was simplified or renamed, or one of another exporter. Everything that
the untouched module computes is recorded, and the graph is searched among it (``search``). An
export is made of the module only where what PyTorch computes is too coarse to tell a node by: it
costs the most of all that a diagnosis does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import NO_NODE, FaultyNode, SearchResult, without_value
from onnx_gate.diagnose.localize.in_float64 import explained_by_rounding
from onnx_gate.diagnose.localize.matching import SearchScope
from onnx_gate.diagnose.localize.missing import missing_operators
from onnx_gate.diagnose.localize.search import PLUMBING, Search
from onnx_gate.diagnose.trace.record_export import add_fresh_export
from onnx_gate.diagnose.trace.record_file import record_file
from onnx_gate.diagnose.trace.record_module import record_module
from onnx_gate.diagnose.trace.trace import Trace
from onnx_gate.graph.graph import Node
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.file_module import FileModule

# Differences that turned out to be rounding, in a row, before the search is given up.
_ROUNDINGS = 8


def search_by_value(divergence: Divergence) -> SearchResult:
    """Search among all that the untouched module computes, and a fresh export of it."""
    trace = Trace()
    result = SearchResult(trace)
    subject, graph, output = divergence.subject, divergence.graph, divergence.output
    module = subject.eager.module
    exporters: Sequence[str] = subject.exported.exporters
    try:
        if isinstance(module, FileModule):
            exporters = ()
            record_file(divergence.subject, module, trace, divergence.store)
        else:
            record_module(subject.eager, subject.arrays, trace, divergence.store, subject.workspace)
    except Refusal as error:
        result = result.noting(f"the model cannot be recorded: {error}")
    if graph.is_constant(output) and output in graph.producer:
        inside = FaultyNode(graph.producer[output], output, without_value())
        result = result.noting("the output does not depend on the inputs")
        return dataclasses.replace(result, inside=inside)
    search = Search(_scope(divergence, trace))
    faulty = _first(search)
    if exporters and (faulty is None or not search.matching.is_plain(faulty)):
        any(add_fresh_export(divergence, exporter, trace) for exporter in exporters)
        search = Search(_scope(divergence, trace))
        faulty = _first(search)
    if faulty is None:
        return _guessed(search, result)
    matching = search.matching
    missing = missing_operators(matching, faulty)
    lowering, values = tuple(matching.lowering_of(faulty)), dict(matching.reference_inputs)
    matching.override(faulty.value, faulty.traced)
    matching.substitute_reference()
    return dataclasses.replace(
        _known(search, result), faulty=faulty, missing=missing, lowering=lowering, values=values
    )


def _scope(divergence: Divergence, trace: Trace) -> SearchScope:
    return SearchScope(
        divergence.runner,
        divergence.feeds,
        {divergence.output: divergence.expected},
        trace,
        divergence.store,
        divergence.deadline,
    )


def _first(search: Search) -> FaultyNode | None:
    """Return the first faulty node whose error is more than rounding."""
    matching = search.matching
    for _ in range(_ROUNDINGS):
        matching.substitute_reference()
        faulty = search.find()
        if faulty is None:
            return None
        outputs = search.scope.runner.run(faulty.node, matching.reference_inputs)
        if not explained_by_rounding(outputs.get(faulty.value), faulty.traced, search.scope.trace):
            return faulty
        matching.override(faulty.value, faulty.traced)
    return None


def _guessed(search: Search, result: SearchResult) -> SearchResult:
    """Name the first node whose value PyTorch does not have, where nothing else is known."""
    region, _ = search.matching.region()
    result = dataclasses.replace(
        _known(search, result), values=dict(search.matching.reference_inputs)
    )
    if not region:
        return result.noting(NO_NODE)
    node: Node = next((n for n in region if n.op_type not in PLUMBING), region[0])
    result = result.noting(
        "the node is the first whose value the other side does not have; that it is wrong is not shown"
    )
    return dataclasses.replace(result, inside=FaultyNode(node, node.outputs[0], without_value()))


def _known(search: Search, result: SearchResult) -> SearchResult:
    matching = search.matching
    return dataclasses.replace(
        result,
        traced={name: equal[0] for name, equal in matching.matched.items() if equal},
        local_error=matching.local_error,
    )
