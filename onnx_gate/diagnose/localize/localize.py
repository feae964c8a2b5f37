"""Find the first node of a diverged graph at which the error is born, and where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from onnx_gate.deadline import Deadline, OutOfTime
from onnx_gate.diagnose.divergence import Divergence, find_divergence
from onnx_gate.diagnose.localize.by_name import first_effective, search_by_name
from onnx_gate.diagnose.localize.by_value import search_by_value
from onnx_gate.diagnose.localize.faulty import (
    FaultyNode,
    SearchResult,
    WrongConstant,
    without_value,
)
from onnx_gate.diagnose.localize.fixed import wrong_constant
from onnx_gate.diagnose.localize.lowering import narrow
from onnx_gate.diagnose.localize.matching import SearchScope, as_called
from onnx_gate.diagnose.localize.order import exchanged
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.diagnose.localize.search import Search
from onnx_gate.diagnose.localize.tapped import first_wrong
from onnx_gate.diagnose.trace.record_module import record_module
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.diagnose.values import ArrayStore, distance
from onnx_gate.graph.graph import Graph
from onnx_gate.graph.run_node import run_until
from onnx_gate.graph.session import Value
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model.diagnosis import GraphNode, NodeError, Source
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.subject import Subject

# So many errors along a graph are told: all near the faulty node, the rest thinned.
MOST = 200
# Rows on either side of the faulty node that are never left out.
_NEAR = 50


@dataclass(frozen=True)
class Located:
    """Where the error is born.

    ``nodes`` are the errors along the graph, in topological order, thinned away from the faulty
    node. ``inputs`` are what the faulty node reads (constants left out) and ``expected`` what it
    should make of them, as PyTorch has both, by the names of the graph's values; a value that
    PyTorch does not have is the graph's own, computed of PyTorch's. Where the faulty node is inside
    of a subgraph both hold those of the node around it too. ``proto`` is the node itself, of the
    file's graph or of a subgraph. ``beside`` is the node of the graph next to which ``node`` is
    missing. ``constant`` is what the faulty value is wrong by, where no input comes to that;
    ``exchanged`` are two operators that PyTorch has in the other order. ``note`` says what could not be
    found out.
    """

    node: GraphNode | None = None
    beside: GraphNode | None = None
    source: Source | None = None
    nodes: tuple[NodeError, ...] = ()
    note: str = ""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    expected: Mapping[str, Array] = field(default_factory=dict)
    proto: onnx.NodeProto | None = None
    constant: WrongConstant | None = None
    exchanged: tuple[str, str] | None = None

    @property
    def guilty(self) -> int | None:
        """The place of the faulty node among those along the graph."""
        if self.node is None:
            return None
        names = [(each.name, each.op_type, each.output) for each in self.nodes]
        key = (self.node.name, self.node.op_type, self.node.output)
        return names.index(key) if key in names else None


def localize(subject: Subject, seconds: float = 120.0) -> Located:
    """Return the first node, in topological order, at which the error of a diverged check is born.

    Nodes run alone, without optimisations, on PyTorch's own values of their inputs. After
    ``seconds`` what is known by then is returned, with a note.
    """
    if subject.output >= len(subject.exported.proto.graph.output):
        return Located(note="the graph has fewer outputs than the model")
    store = ArrayStore(subject.folder / "values", subject.memory)
    try:
        divergence = find_divergence(subject, store, Deadline(seconds))
        located = _located(divergence, _search(divergence))
        if located.node is None and has_own_kernels(subject.runtime):
            return _tapped(divergence, located)
        return located
    except Refusal as error:
        return Located(note=f"{subject.spec.against} refuses these inputs: {error}")
    finally:
        store.clear()


def has_own_kernels(runtime: RuntimeSpec) -> bool:
    """Return whether a runtime is another one than ONNX Runtime's kernels for the CPU."""
    return not runtime.engine.plain or runtime.processor != "cpu"


def _tapped(divergence: Divergence, located: Located) -> Located:
    """Return the first node that the runtime has wrong in the graph, where none is wrong alone."""
    try:
        node, note = first_wrong(divergence)
    except OutOfTime:
        node, note = None, "the time for the search ran out"
    if node is None:
        return replace(located, note="; ".join(filter(None, (located.note, note))))
    origins, value = Origins(divergence.subject), node.outputs[0]
    faulty = GraphNode(**origins.fields(node, value))
    return Located(node=faulty, source=origins.source(node, value), note=note, proto=node.proto)


def _search(divergence: Divergence) -> SearchResult:
    """Take one step after the other; where one breaks off, what is known by then is the result."""
    result = SearchResult()
    if divergence.of_dtype:
        return search_by_dtype(divergence)
    if divergence.error == 0.0:
        return result.noting(
            "with optimisations off the nodes, run one by one, agree with "
            f"{divergence.subject.spec.against}"
        )
    try:
        result = search_by_name(divergence) or search_by_value(divergence)
        result = first_effective(divergence, result)
        result = exchanged(divergence, result)
        if result.exchanged is None:
            result = narrow(divergence, result)
            result = wrong_constant(divergence, result)
        if result.faulty is not None and not result.missing:
            result = search_body(divergence, result)
    except OutOfTime:
        return result.noting("the time for the search ran out")
    except MemoryError as error:
        return result.noting(str(error) or "there is not enough memory for the search")
    return result


def _located(divergence: Divergence, result: SearchResult) -> Located:
    faulty = result.inside or result.faulty
    note = "; ".join(result.notes)
    origins = Origins(divergence.subject)
    profile = error_profile(divergence, result, origins)
    if faulty is None:
        return Located(note=note, nodes=profile)
    outer = result.faulty or faulty
    kin = _kin(faulty, outer, result)
    node = GraphNode(
        **origins.fields(faulty.node, faulty.value, *kin),
        operator="" if result.is_shown else as_called(outer.traced.operator),
    )
    source = origins.source(faulty.node, faulty.value, *kin)
    beside = None
    if result.missing:
        beside, lacking = node, [_lacking(each, result.trace) for each in result.missing]
        node, source = lacking[0]
        what = "this operator"
        if len(lacking) > 1:
            *most, last = [each.op_type for each, _ in lacking]
            what = f"{', '.join(most)} and {last}, one behind the other"
        note = "; ".join((*result.notes, f"the graph lacks {what}, next to {_named(beside)}"))
    pair = result.exchanged
    # What a node inside of a subgraph reads is no value of the graph: that of the node around is.
    around = [faulty] if faulty.value in divergence.graph.producer else [faulty, outer]
    return Located(
        node=node,
        beside=beside,
        source=source,
        nodes=profile,
        note=note,
        inputs={
            name: np.array(result.values[name])
            for each in around
            for name in each.node.inputs
            if isinstance(result.values.get(name), np.ndarray)
        },
        expected={f.value: np.array(f.traced.array) for f in around if f.traced.number >= 0},
        proto=faulty.node.proto,
        constant=result.constant,
        exchanged=None if pair is None else (pair[0].op_type, pair[1].op_type),
    )


def _lacking(missing: TracedValue, trace: Trace) -> tuple[GraphNode, Source | None]:
    """Return an operator that the graph has not as PyTorch, or a fresh export, has it."""
    equal = [missing, *trace.find(missing.array)]
    module = next((t.module for t in equal if t.module is not None), None)
    source = next((t.source for t in equal if t.source is not None), None)
    op_type = missing.operator
    if "." in op_type:
        op_type = "".join(word.capitalize() for word in op_type.split(".")[1].split("_"))
    return GraphNode(name=missing.name or "", op_type=op_type, module=module), source


def _named(node: GraphNode) -> str:
    return f"{node.op_type} {node.name or node.output}"


def _kin(faulty: FaultyNode, outer: FaultyNode, result: SearchResult) -> list[TracedValue]:
    """Return traced values of the same origin as the faulty value, the surest first."""
    trace = result.trace
    own = [faulty.traced, outer.traced]
    known = [traced for traced in own if traced.number >= 0]
    equal = [each for traced in known for each in trace.find(traced.array)]
    heirs = [child for traced in known for child in trace.children(traced.number, 2)]
    return [*own, *equal, *(each for child in heirs for each in trace.find(trace[child].array))]


def error_profile(
    divergence: Divergence, result: SearchResult, origins: Origins
) -> tuple[NodeError, ...]:
    """Return the error that has accumulated at every value that PyTorch has too, in order."""
    errors: dict[str, float] = {}

    def look(name: str, value: Value) -> None:
        if name == divergence.output:
            errors[name] = divergence.error_of(value)
        elif name in result.traced:
            errors[name] = distance(value, result.traced[name].array)

    run_until(divergence.runner, divergence.feeds, [divergence.output], look=look)
    faulty = result.faulty or result.inside
    rows: list[NodeError] = []
    index = 0
    for name, error in errors.items():
        node = divergence.graph.producer[name]
        if faulty is not None and node.index <= faulty.node.index:
            index = len(rows)
        rows.append(
            NodeError(
                **origins.fields(node, name, result.traced.get(name)),
                error=error,
                born=result.local_error.get(name),
            )
        )
    return tuple(rows[i] for i in _chosen(len(rows), index))


def _chosen(count: int, index: int) -> list[int]:
    if count <= MOST:
        return list(range(count))
    near = set(range(max(0, index - _NEAR), min(count, index + _NEAR + 1)))
    rest = [i for i in range(count) if i not in near]
    step = -(-len(rest) // (MOST - len(near)))
    return sorted(near | set(rest[::step]) | {count - 1} if step else near)


def search_by_dtype(divergence: Divergence) -> SearchResult:
    """Return the node that first has the output's dtype, of those that hand it on to the output.

    For an output that is PyTorch's but for its dtype. Values cannot tell it, as each is as near to
    PyTorch's as its own dtype allows; the dtypes along the graph can, back from the output.
    """
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


def search_body(divergence: Divergence, result: SearchResult) -> SearchResult:
    """Return the result with the faulty node inside a faulty If, Loop or Scan.

    It is one of the branch taken, or of a loop's first round.
    """
    faulty = result.inside
    if faulty is None:
        return result
    inner = _search_body(divergence, result, faulty)
    return result if inner is None else dataclasses.replace(result, inside=inner)


def _search_body(
    divergence: Divergence, result: SearchResult, faulty: FaultyNode
) -> FaultyNode | None:
    runner = divergence.runner
    bodies = dict(runner.graph.bodies(faulty.node))
    if not bodies:
        return None
    read = {name: runner.value(name, result.values) for name in faulty.node.inputs}
    if faulty.node.op_type == "If":
        condition = read.get(faulty.node.proto.input[0])
        if not isinstance(condition, np.ndarray):
            return None
        body = bodies["then_branch" if bool(condition.item()) else "else_branch"]
        feeds = dict(read)
    elif faulty.node.op_type == "Loop":
        body = bodies["body"]
        state = [read.get(name) for name in faulty.node.proto.input[2:]]
        first = [np.array(0, np.int64), np.array(True), *state]
        feeds = {**read, **dict(zip(body.inputs, first, strict=False))}
    else:
        return None
    search = Search(
        SearchScope(
            runner.inside(body),
            feeds,
            _expected_outputs(faulty, body),
            result.trace,
            divergence.store,
            divergence.deadline,
        )
    )
    search.matching.substitute_reference()
    return search.find()


def _expected_outputs(faulty: FaultyNode, body: Graph) -> dict[str, Array | None]:
    """Return what the body's outputs have to be: known for a branch, not for one round of many."""
    if faulty.node.op_type != "If":
        return dict.fromkeys(body.outputs)
    index = list(faulty.node.proto.output).index(faulty.value)
    return {body.outputs[index]: faulty.traced.array}
