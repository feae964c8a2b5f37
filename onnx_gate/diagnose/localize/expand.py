"""What happens inside one operator: its decomposition, and a correct lowering of it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch._decomp import decomposition_table

from onnx_gate.diagnose.localize.in_float64 import arguments
from onnx_gate.diagnose.trace.record_export import add_graph, run_all, silence_exporters
from onnx_gate.diagnose.trace.record_module import OperatorRecorder
from onnx_gate.diagnose.trace.trace import Input, OperatorCall, Trace, TracedValue
from onnx_gate.diagnose.values import ArrayStore, agree
from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.run_node import Runner
from onnx_gate.runtimes.torch_eager import to_array
from onnx_gate.verify.subject import Subject


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
