"""An operator that PyTorch has and the graph has not: what follows it is named wrongly without it.

Where a residual was dropped, or an activation, no node of the graph computes anything wrong: the one
behind the gap is right about what it reads, and reads the wrong value. The search blames it, as
PyTorch's value in the place of its output is what puts it right. What it should have read tells the two
apart: PyTorch made that of what it does read, and no node of the graph makes it.
"""

from __future__ import annotations

from onnx_gate.diagnose.localize.faulty import FaultyNode
from onnx_gate.diagnose.localize.matching import Matching, bare_name, in_dtype
from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.diagnose.values import agree

# Steps from what a node reads to what it should have read: an operator, and what PyTorch takes it
# apart into.
_STEPS = 2


def missing_operator(matching: Matching, faulty: FaultyNode) -> TracedValue | None:
    """Return the result that PyTorch has between two nodes of the graph, and the graph has not.

    ``None`` where the node itself is wrong, or what it should read cannot be told.
    """
    own = {t.number for t in matching.matched.get(faulty.value, ())}
    if own:
        return _missing_behind(matching, faulty, own)
    trace, node = matching.trace, faulty.node
    equal = trace.find(faulty.traced.array)
    name = bare_name(node.op_type)
    for made in sorted(equal, key=lambda t: name not in bare_name(t.operator)):
        read = {
            i: {t.number for t in matching.matched.get(i, ())}
            for i in matching.graph.depends_on_input(node)
        }
        parents = {p for p in made.parents if trace[p].depends_on_input}
        unread = parents - set().union(*read.values())
        instead = [i for i, numbers in read.items() if not numbers & parents]
        if len(unread) != 1 or len(instead) != 1:
            continue
        missing = trace[unread.pop()]
        if (
            _is_nowhere(matching, missing)
            and any(missing.number in trace.children(p, _STEPS) for p in read[instead[0]])
            and _is_right_with(matching, faulty, instead[0], missing)
        ):
            return _as_exported(matching, missing)
    return None


def _missing_behind(matching: Matching, faulty: FaultyNode, own: set[int]) -> TracedValue | None:
    """Return what PyTorch makes of a node's right value, where the graph ends with that value."""
    read = {
        t.number
        for i in matching.graph.depends_on_input(faulty.node)
        for t in matching.matched.get(i, ())
    }
    # A node that hands on what it reads stands where an operator should be: it is at fault itself.
    if own & read or faulty.value not in matching.expected_outputs:
        return None
    made = [t for t in matching.trace.find(faulty.traced.array) if own & set(t.parents)]
    return _as_exported(matching, made[0]) if made and _is_nowhere(matching, made[0]) else None


def _is_nowhere(matching: Matching, missing: TracedValue) -> bool:
    """Return whether no node of the graph makes a value."""
    numbers = {t.number for t in matching.trace.find(missing.array)}
    return missing.distinctive and not numbers & matching.taken


def _is_right_with(
    matching: Matching, faulty: FaultyNode, instead: str, missing: TracedValue
) -> bool:
    """Return whether the node makes what PyTorch makes, once it reads what PyTorch reads."""
    values = matching.reference_inputs
    changed = {**values, instead: in_dtype(missing.array, values.get(instead))}
    outputs = matching.scope.runner.run(faulty.node, changed)
    return agree(outputs.get(faulty.value), faulty.traced.array)


def _as_exported(matching: Matching, missing: TracedValue) -> TracedValue:
    """Return the same value as a fresh export has it, by ONNX's operator, where there is one."""
    equal = matching.trace.find(missing.array)
    return next((t for t in equal if "." not in t.operator), missing)
