"""Operators that PyTorch has and the graph has not: what follows them is named wrongly without them.

Where a residual was dropped, an activation, or a soft cap of several operators, no node of the graph
computes anything wrong: the one behind the gap is right about what it reads, and reads the wrong value.
The search blames it, as PyTorch's value in the place of its output is what puts it right. What it should
have read tells the two apart: PyTorch made that of what it does read, and no node of the graph makes it.
"""

from __future__ import annotations

from onnx_gate.diagnose.localize.faulty import FaultyNode
from onnx_gate.diagnose.localize.guards import is_right_with, missing_guard
from onnx_gate.diagnose.localize.matching import Matching, bare_name
from onnx_gate.diagnose.trace.trace import TracedValue

# Steps from what a node reads to what it should have read: the operators of a soft cap or of a
# normalisation that somebody wrote out, and what PyTorch takes them apart into.
_STEPS = 6
# Operators of PyTorch's that put elements elsewhere: none that anybody misses.
_MOVES = frozenset(
    ["view", "unsafeview", "reshape", "expand", "clone", "permute", "transpose", "t", "tocopy"]
)


def missing_operators(matching: Matching, faulty: FaultyNode) -> tuple[TracedValue, ...]:
    """Return the results that PyTorch has between two nodes of the graph, in order, and the graph has not.

    None where the node itself is wrong, or what it should read cannot be told.
    """
    trace, node = matching.trace, faulty.node
    equal = trace.find(faulty.traced.array)
    name = bare_name(node.op_type)
    for made in sorted(equal, key=lambda t: name not in bare_name(t.operator)):
        read = {
            i: {t.number for t in matching.matched.get(i, ())}
            for i in matching.graph.depends_on_input(node)
        }
        parents = set(made.parents)
        unread = {p for p in parents if trace[p].depends_on_input} - set().union(*read.values())
        instead = [i for i, numbers in read.items() if not numbers & parents]
        if len(unread) != 1 or len(instead) != 1:
            continue
        missing = trace[unread.pop()]
        gap = _gap(matching, read[instead[0]], missing)
        if gap and is_right_with(matching, faulty, instead[0], missing, faulty.traced):
            return gap
    own = {t.number for t in matching.matched.get(faulty.value, ())}
    behind = _missing_behind(matching, faulty, own) if own else ()
    return behind or missing_guard(matching, faulty)


def _missing_behind(
    matching: Matching, faulty: FaultyNode, own: set[int]
) -> tuple[TracedValue, ...]:
    """Return what PyTorch makes of a node's right value, where the graph ends with that value."""
    read = {
        t.number
        for i in matching.graph.depends_on_input(faulty.node)
        for t in matching.matched.get(i, ())
    }
    # A node that hands on what it reads stands where an operator should be: it is at fault itself.
    if own & read or faulty.value not in matching.expected_outputs:
        return ()
    gaps = (_gap(matching, own, made) for made in matching.trace.find(faulty.traced.array))
    return next(filter(None, gaps), ())


def _gap(matching: Matching, own: set[int], last: TracedValue) -> tuple[TracedValue, ...]:
    """Return what PyTorch computes from one of its values to another, if no node of the graph does."""
    trace = matching.trace
    behind = {child for number in own for child in trace.children(number, _STEPS)}
    chain, pending = {last.number}, [last.number]
    while pending:
        before = behind.intersection(trace[pending.pop()].parents) - chain - own
        chain |= before
        pending += before
    gap = [trace[n] for n in sorted(chain)]
    made = {t.number for each in gap for t in trace.find(each.array)}
    if last.number not in behind or not last.distinctive or made & matching.taken:
        return ()
    if made & matching.elsewhere():  # by what leads to another output
        return ()
    computed = [t for t in gap if bare_name(t.operator) not in _MOVES] or gap
    return tuple(_as_exported(matching, each) for each in computed)


def _as_exported(matching: Matching, missing: TracedValue) -> TracedValue:
    """Return the same value as a fresh export has it, by ONNX's operator, where there is one."""
    equal = matching.trace.find(missing.array)
    return next((t for t in equal if "." not in t.operator), missing)
