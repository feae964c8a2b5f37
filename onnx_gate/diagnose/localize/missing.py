"""Operators that PyTorch has and the graph has not: what follows them is named wrongly without them.

Where a residual was dropped, an activation, or a soft cap of several operators, no node of the graph
computes anything wrong: the one behind the gap is right about what it reads, and reads the wrong value.
The search blames it, as PyTorch's value in the place of its output is what puts it right. What it should
have read tells the two apart: PyTorch made that of what it does read, and no node of the graph makes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx_gate.diagnose.localize.faulty import FaultyNode
from onnx_gate.diagnose.localize.matching import Matching, bare_name, in_dtype
from onnx_gate.diagnose.localize.search import PLUMBING
from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.diagnose.values import agree

# Steps from what a node reads to what it should have read: the operators of a soft cap or of a
# normalisation that somebody wrote out, and what PyTorch takes them apart into.
_STEPS = 6
# Operators of PyTorch's that put elements elsewhere: none that anybody misses.
_MOVES = frozenset(
    ["view", "unsafeview", "reshape", "expand", "clone", "permute", "transpose", "t", "tocopy"]
)
_OF_PYTORCH = frozenset(
    [
        *("clamp", "clampmin", "clampmax", "maximum", "minimum", "hardtanh", "where", "maskedfill"),
        *("nantonum", "clip", "max", "min"),
    ]
)
_OF_THE_GRAPH = frozenset(["Clip", "Max", "Min", "Where", "If"])


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


def missing_guard(matching: Matching, faulty: FaultyNode) -> tuple[TracedValue, ...]:
    """Return what PyTorch puts in front of the faulty operator and the graph does not, if that mends it.

    A ``clamp`` in front of a root, a number added to a divisor, a ``where`` behind a softmax: on most
    values they change nothing, or leave a constant, so that no value tells that they are missing. That
    PyTorch has one there, that the graph has none, and that the node is right once it reads what that
    makes, is seen without looking one up.
    """
    bare = [i for i in matching.graph.depends_on_input(faulty.node) if not _guarded(matching, i)]
    for made in _made(matching, faulty):
        for guard in map(matching.trace.__getitem__, made.parents):
            if _guards(guard) and any(
                is_right_with(matching, faulty, i, guard, made) for i in bare
            ):
                return (guard,)
    return ()


def is_right_with(
    matching: Matching, faulty: FaultyNode, instead: str, missing: TracedValue, made: TracedValue
) -> bool:
    """Return whether the node makes what PyTorch has ``made``, once it reads what PyTorch reads."""
    values = matching.reference_inputs
    changed = {**values, instead: in_dtype(missing.array, values.get(instead))}
    outputs = matching.scope.runner.run(faulty.node, changed)
    return agree(outputs.get(faulty.value), made.array)


def _made(matching: Matching, faulty: FaultyNode) -> Iterator[TracedValue]:
    """Yield what PyTorch makes by the faulty operator, of a fresh export first: that has names of ONNX's.

    A value that a guard makes does in the place of the operator's as well, where any number does.
    """
    name, trace = bare_name(faulty.node.op_type), matching.trace
    equal = trace.find(faulty.traced.array)
    behind = [trace[c] for t in equal if _guards(t) for c in trace.children(t.number, 1)]
    alike = {t.number: t for t in (*equal, *behind) if name in bare_name(t.operator)}
    yield from sorted(alike.values(), key=lambda t: "." in t.operator)


def _guards(traced: TracedValue) -> bool:
    name = bare_name(traced.operator)
    adds = name == "add" and len(traced.parents) == 1
    return traced.depends_on_input and (adds or name in _OF_PYTORCH)


def _guarded(matching: Matching, name: str) -> bool:
    """Return whether a guard makes a value, whatever only moves it about between."""
    producer = matching.graph.producer.get(name)
    while producer is not None and producer.op_type in PLUMBING:
        producer = matching.graph.producer.get(producer.inputs[0])
    if producer is None:
        return False
    adds = producer.op_type == "Add" and len(matching.graph.depends_on_input(producer)) == 1
    return adds or producer.op_type in _OF_THE_GRAPH
