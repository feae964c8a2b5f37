"""What keeps an operator of PyTorch's within where it is defined, and is not in the graph.

A ``clamp`` in front of a root, a number added to a divisor, a ``where`` behind a softmax: on most values
they change nothing, or leave a constant, so that no value tells that they are missing. That PyTorch has one
there, that the graph has none, and that the node is right once it reads what that makes, is seen without
looking one up.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx_gate.diagnose.localize.faulty import FaultyNode
from onnx_gate.diagnose.localize.matching import Matching, bare_name, in_dtype
from onnx_gate.diagnose.localize.search import PLUMBING
from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.diagnose.values import agree

_OF_PYTORCH = frozenset(
    [
        *("clamp", "clampmin", "clampmax", "maximum", "minimum", "hardtanh", "where", "maskedfill"),
        *("nantonum", "clip", "max", "min"),
    ]
)
_OF_THE_GRAPH = frozenset(["Clip", "Max", "Min", "Where", "If"])


def missing_guard(matching: Matching, faulty: FaultyNode) -> tuple[TracedValue, ...]:
    """Return what PyTorch puts in front of the faulty operator and the graph does not, if that mends it."""
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
