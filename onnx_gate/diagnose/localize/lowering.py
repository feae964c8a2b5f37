"""Inside a lowering of several nodes: the one of them that is wrong.

First with what PyTorch is known to have computed, then with what the operator computes on its way
and with a fresh lowering of that operator alone.
"""

from __future__ import annotations

import dataclasses

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.expand import decompose, lower
from onnx_gate.diagnose.localize.faulty import FaultyNode, SearchResult, without_value
from onnx_gate.diagnose.localize.matching import SearchScope
from onnx_gate.diagnose.localize.search import PLUMBING, Search
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.graph.graph import Node


def narrow(divergence: Divergence, result: SearchResult) -> SearchResult:
    """Return the result with the node that the fault comes down to, where one can be shown."""
    faulty = result.faulty
    if faulty is None or result.inside is not None:
        return result
    if len(result.lowering) < 2 or result.missing:
        return dataclasses.replace(result, inside=faulty)
    best, left, values = faulty, result.lowering, result.values
    search: Search | None = None
    for deep in (False, True):
        if deep:
            _expand(divergence, faulty.traced, result.trace)
        search = _search(divergence, result, faulty)
        inner = search.find()
        if inner is None:
            continue
        before = tuple(search.matching.lowering_of(inner))
        if len(before) <= len(left):
            best, left, values = inner, before, search.matching.reference_inputs
        # The value of the whole lowering, put behind another node of it, proves little.
        if len(left) == 1 and (inner.traced is not faulty.traced or inner.node is faulty.node):
            break
    result = dataclasses.replace(result, values=values)
    odd = [node for node in left if node.op_type not in PLUMBING]
    if len(left) == 1 or not odd or odd == [best.node]:
        return dataclasses.replace(result, inside=best)
    return _among(odd, best, search, result)


def _among(
    odd: list[Node], best: FaultyNode, search: Search | None, result: SearchResult
) -> SearchResult:
    """Choose among several nodes that compute something, none of which can be shown to be wrong."""
    if len(odd) > 1:
        direct = search.direct(odd) if search is not None else None
        if direct is not None:
            return dataclasses.replace(result, inside=direct)
        result = dataclasses.replace(result, is_shown=False).noting(
            f"{len(odd)} nodes compute this value, and which of them is wrong is not shown"
        )
    last = FaultyNode(odd[-1], odd[-1].outputs[0], without_value(best.traced))
    return dataclasses.replace(result, inside=last)


def _search(divergence: Divergence, result: SearchResult, faulty: FaultyNode) -> Search:
    search = Search(
        SearchScope(
            divergence.runner,
            result.values,
            {faulty.value: faulty.traced.array},
            result.trace,
            divergence.store,
            divergence.deadline,
            result.lowering,
            result.traced,
            flat=True,
        )
    )
    search.matching.substitute_reference()
    return search


def _expand(divergence: Divergence, traced: TracedValue, trace: Trace) -> None:
    """Add to ``trace`` what an operator computes on its way, and a fresh lowering of it alone."""
    same = [traced, *trace.find(traced.array)]
    called = next((t for t in same if t.call is not None), traced)
    decompose(called, trace, divergence.store)
    lower(
        called,
        divergence.subject.exported.exporters[0],
        divergence.subject,
        trace,
        divergence.store,
    )
