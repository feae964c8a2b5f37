"""Inside a lowering of several nodes: the one of them that is wrong.

First with what PyTorch is known to have computed, then with what the operator computes on its way
and with a fresh lowering of that operator alone.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch._decomp import decomposition_table

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import FaultyNode, SearchResult, without_value
from onnx_gate.diagnose.localize.in_float64 import arguments
from onnx_gate.diagnose.localize.matching import SearchScope
from onnx_gate.diagnose.localize.search import PLUMBING, Search
from onnx_gate.diagnose.trace.record_export import add_graph, run_all, silence_exporters
from onnx_gate.diagnose.trace.record_module import OperatorRecorder
from onnx_gate.diagnose.trace.trace import Input, OperatorCall, Trace, TracedValue
from onnx_gate.diagnose.values import ArrayStore, agree
from onnx_gate.graph.graph import Node, read_graph
from onnx_gate.graph.run_node import Runner
from onnx_gate.runtimes.torch_eager import to_array
from onnx_gate.verify.subject import Subject


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


class _Deep(OperatorRecorder):
    """Records operators taken apart as far as torch knows how to."""

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        apart = decomposition_table.get(func)
        if apart is None:
            return super().run(name, func, args, kwargs)
        with self:
            return apart(*args, **kwargs)


def decompose(traced: TracedValue, trace: Trace, store: ArrayStore) -> bool:
    """Add what an operator computes on its way to ``trace``; return whether there is anything."""
    call = traced.call
    if call is None:
        return False
    before = len(trace.values)
    try:
        args, kwargs = arguments(call, trace)
        deep = _Deep(trace, store, None)
        for number, tensor in _inputs(call, (args, kwargs)):
            deep.know(tensor, number)
        with torch.no_grad(), deep:
            call.function(*args, **kwargs)
    except MemoryError:
        raise
    except Exception:
        return len(trace.values) > before
    return len(trace.values) > before


def _inputs(call: OperatorCall, filled: Any) -> list[tuple[int, torch.Tensor]]:
    """Return the traced values among the arguments, with the tensors that stand for them."""
    before = pytree.tree_leaves((call.args, call.kwargs), is_leaf=lambda x: isinstance(x, Input))
    after = pytree.tree_leaves(filled)
    return [(a.number, b) for a, b in zip(before, after, strict=False) if isinstance(a, Input)]


class _Alone(nn.Module):
    """One operator as a module of its tensors."""

    def __init__(
        self, call: OperatorCall, indices: list[int], leaves: list[Any], spec: Any
    ) -> None:
        super().__init__()
        self._call, self._indices = call, indices
        self._leaves, self._spec = leaves, spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self._leaves)
        for index, tensor in zip(self._indices, tensors, strict=True):
            leaves[index] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        result = self._call.function(*args, **kwargs)
        return tuple(x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor))


def lower(
    traced: TracedValue, exporter: str, subject: Subject, trace: Trace, store: ArrayStore
) -> bool:
    """Export an operator alone and add its nodes' values; return whether the result is right."""
    call = traced.call
    if call is None:
        return False
    path = subject.folder / "operator.onnx"
    subject.folder.mkdir(parents=True, exist_ok=True)
    try:
        filled = arguments(call, trace)
        leaves, spec = pytree.tree_flatten(filled)
        known = {id(tensor): number for number, tensor in _inputs(call, filled)}
        indices = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = tuple(leaves[i] for i in indices)
        with silence_exporters(), torch.no_grad():
            _export(_Alone(call, indices, leaves, spec), tensors, exporter, path)
        graph = read_graph(onnx.load(str(path), load_external_data=False), path)
        names = [f"x{i}" for i in range(len(tensors))]
        given = zip(names, tensors, strict=True)
        feeds = {n: to_array(t) for n, t in given if n in graph.inputs}
    except Exception:
        return False
    if set(feeds) != set(graph.inputs):
        return False
    runner = Runner(graph, subject.runtime, subject.folder)
    values, made = run_all(runner, feeds, store)
    if not any(agree(values.get(output), traced.array) for output in graph.outputs):
        return False
    sources = {n: known[id(t)] for n, t in zip(names, tensors, strict=True) if id(t) in known}
    add_graph(graph, values, made, trace, None, sources)
    return True


def _export(module: nn.Module, tensors: tuple[torch.Tensor, ...], exporter: str, path: Path) -> Any:
    names = [f"x{i}" for i in range(len(tensors))]
    if exporter == "torchscript":
        torch.onnx.export(
            module, tensors, str(path), dynamo=False, input_names=names, verbose=False
        )
        return
    program = torch.onnx.export(
        module, tensors, dynamo=True, input_names=names, verbose=False, optimize=True
    )
    assert program is not None
    program.save(str(path))
