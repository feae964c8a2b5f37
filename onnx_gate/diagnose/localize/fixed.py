"""What a graph computes of its constants alone, where that is not what PyTorch has there.

A weight that a file stores in few bits is made of several constants (numbers, scale, zero point). The
search takes whatever depends on no input for granted, and finds the operator that reads it: with what
PyTorch reads there that one is right. So it is asked what becomes of the faulty value once a value that is
made of constants is one of PyTorch's own, the first of them first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import nn

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.blame.weights import weights_of
from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import FaultyNode, SearchResult, WrongConstant
from onnx_gate.diagnose.localize.search import PLUMBING
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.diagnose.values import agree
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array

# What the trace calls a tensor that the module holds: it is no operator's result.
HELD = "held"
# Smaller ones are numbers beside an operator, which are looked at with it.
_SMALL = 8
# Values of PyTorch's tried in the place of one of the graph's: the last that are made of weights alone
# are what the others lead to.
_TRIES = 40


def wrong_constant(divergence: Divergence, result: SearchResult) -> SearchResult:
    """Return the result with the node that makes a wrong weight, where the faulty node reads one."""
    faulty = result.faulty
    if faulty is None or result.missing:
        return result
    nodes = result.lowering or (faulty.node,)
    expected = faulty.traced.array
    found = find_constant(
        divergence.runner,
        nodes,
        result.values,
        result.trace,
        divergence.subject.eager.module,
        lambda values: agree(values.get(faulty.value), expected),
        divergence.deadline,
    )
    return result if found is None else _placed(divergence, result, *found)


def find_constant(
    runner: Runner,
    nodes: Sequence[Node],
    values: Mapping[str, Value],
    trace: Trace,
    module: nn.Module,
    is_right: Callable[[Mapping[str, Value]], bool],
    deadline: Deadline,
) -> tuple[WrongConstant, TracedValue] | None:
    """Return a constant that ``nodes`` read and that is wrong, with what PyTorch has in its place.

    With that they are right, by what ``is_right`` says of the values that they then make.
    """
    graph = runner.graph
    nodes = [node for node in nodes if not all(map(graph.is_constant, node.outputs))]
    made = _made(graph, nodes)
    read = dict.fromkeys(n for node in nodes for n in node.inputs if n in graph.constants)
    names = [*read, *(name for node in made for name in node.outputs)]
    own = {name: runner.value(name, {}) for name in names}
    floats = {n: v for n, v in own.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}
    large = {name: array for name, array in floats.items() if array.size > _SMALL}
    held = _hold(module, trace) if large else {}
    for name, array in large.items():
        after = [node for node in made if name not in node.outputs]
        for right in _candidates(array, trace, held.values() if name in read else ()):
            deadline.check()
            changed = {**values, name: right.array.astype(array.dtype)}
            for node in (*after, *nodes):
                changed.update(runner.run(node, changed))
            if is_right(changed):
                whose = next((key for key, each in held.items() if _is(right, each)), None)
                of = (whose,) if whose is not None else _of(right, trace, module)
                instead = _instead(array, right, trace, module)
                return WrongConstant(
                    name, array, right.array, of, whose is not None, instead
                ), right
    return None


def _made(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """Return what makes the constants that nodes read of others, in order."""
    read = [name for node in nodes for name in node.inputs if name in graph.fixed]
    return [node for node in graph.ancestors(read) if node.op_type != "Constant"]


def _hold(module: nn.Module, trace: Trace) -> Mapping[str, Array]:
    """Add the tensors of a module to the values that PyTorch has, and return them by name."""
    held = weights_of(module)
    for key, array in held.items():
        trace.add(array, HELD, name=key, module=key.rpartition(".")[0])
    return held


def _candidates(own: Array, trace: Trace, held: Iterable[Array]) -> list[TracedValue]:
    """Return what PyTorch may have in the place of a constant, but for what it has ``held``.

    What the module holds comes first. A weight that a file stores as a module does is looked at with
    the node that reads it, for what became of it.
    """
    alike = [t for t in trace.alike(own) if not t.depends_on_input and t.distinctive]
    alike.sort(key=lambda t: (t.operator != HELD, -t.number))
    known = list(held)
    return [
        t
        for t in alike[:_TRIES]
        if not agree(own, t.array) and not any(_is(t, array) for array in known)
    ]


def _is(traced: TracedValue, held: Array) -> bool:
    """Return whether a value is a tensor of the module, turned or not."""
    return any(np.array_equal(traced.array, each) for each in (held, held.T))


def _instead(own: Array, right: TracedValue, trace: Trace, module: nn.Module) -> tuple[str, ...]:
    """Return the tensors of a module that a constant is made of that is another value of PyTorch's."""
    made = (t for t in trace.find(own) if t.distinctive and not t.depends_on_input)
    names = (_of(t, trace, module) for t in made if t.operator != HELD)
    of = _of(right, trace, module)
    return next((each for each in names if each and each != of), ())


def _of(right: TracedValue, trace: Trace, module: nn.Module) -> tuple[str, ...]:
    """Return the names of the tensors of a module that a value is made of."""
    held: Mapping[str, object] = module.state_dict(keep_vars=True)
    names: dict[str, None] = {}
    pending, seen = [right.number], {right.number}
    while pending:
        traced = trace[pending.pop()]
        call = traced.call
        leaves = pytree.tree_leaves((call.args, call.kwargs)) if call is not None else ()
        read = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        names.update({key: None for key, own in held.items() if any(own is t for t in read)})
        pending += [p for p in traced.parents if p not in seen]
        seen.update(traced.parents)
    return tuple(key for key in held if key in names)


def maker(graph: Graph, wrong: WrongConstant) -> Node | None:
    """Return the node that makes a wrong constant, ``None`` where that is stored, or moved about only."""
    node = graph.producer.get(wrong.name)
    return None if node is None or node.op_type in PLUMBING else node


def _placed(
    divergence: Divergence, result: SearchResult, wrong: WrongConstant, right: TracedValue
) -> SearchResult:
    result = dataclasses.replace(result, constant=wrong)
    node = maker(divergence.graph, wrong)
    if node is None:
        return result
    return dataclasses.replace(result, inside=FaultyNode(node, wrong.name, right), is_shown=True)
