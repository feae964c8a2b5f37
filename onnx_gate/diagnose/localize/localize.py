"""Find the first node of a diverged graph at which the error is born, and where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from onnx_gate.deadline import Deadline, OutOfTime
from onnx_gate.diagnose.graph.graph import Node, read_graph
from onnx_gate.diagnose.graph.run_graph import run_until
from onnx_gate.diagnose.graph.run_node import Runner
from onnx_gate.diagnose.graph.values import Store, Value, agree, distance
from onnx_gate.diagnose.localize.by_name import first_effective, substitute_reference
from onnx_gate.diagnose.localize.by_value import PLUMBING, FaultyNode, Search
from onnx_gate.diagnose.localize.exact import explained_by_rounding
from onnx_gate.diagnose.localize.expand import decompose, lower
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.diagnose.localize.profile import ladder
from onnx_gate.diagnose.localize.subgraph import search_body
from onnx_gate.diagnose.subject import Subject
from onnx_gate.diagnose.trace.record_export import MAX_ERROR_RATIO, add_fresh_export
from onnx_gate.diagnose.trace.record_module import record_module
from onnx_gate.diagnose.trace.record_program import record_program
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import GraphNode, NodeError, Source
from onnx_gate.runtimes.base import Array, Refusal

# Differences that turned out to be rounding, in a row, before the search is given up.
_ROUNDINGS = 8


@dataclass(frozen=True)
class Located:
    """Where the error is born.

    ``nodes`` are the errors along the graph, in topological order, thinned away from the guilty
    node. ``inputs`` are what the guilty node reads (constants left out) and ``expected`` what it
    should make of them, as PyTorch has both, by the names of the graph's values; a value that
    PyTorch does not have is the graph's own, computed of PyTorch's. Where the guilty node is inside
    of a subgraph both hold those of the node around it too. ``proto`` is the node itself, of the
    file's graph or of a subgraph. ``note`` says what could not be found out.
    """

    node: GraphNode | None = None
    source: Source | None = None
    nodes: tuple[NodeError, ...] = ()
    note: str = ""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    expected: Mapping[str, Array] = field(default_factory=dict)
    proto: onnx.NodeProto | None = None


@dataclass
class _Known:
    """What is known so far; it is what is returned when the time is up."""

    guilty: FaultyNode | None = None
    lowering_of: tuple[Node, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    moments: Mapping[str, TracedValue] = field(default_factory=dict)
    local_error: Mapping[str, float] = field(default_factory=dict)
    inside: FaultyNode | None = None
    notes: list[str] = field(default_factory=list)


def localize(subject: Subject, seconds: float = 120.0) -> Located:
    """Return the first node, in topological order, at which the error of a diverged check is born.

    Nodes run alone, without optimisations, on PyTorch's own values of their inputs. After
    ``seconds`` what is known by then is returned, with a note.
    """
    store = Store(subject.folder / "values", subject.memory)
    try:
        return _Localizer(subject, store, Deadline(seconds)).run()
    finally:
        store.clear()


class _Localizer:
    def __init__(self, subject: Subject, store: Store, deadline: Deadline) -> None:
        self.subject, self.store, self.deadline = subject, store, deadline
        self.graph = read_graph(subject.exported.proto, subject.exported.path)
        self.runner = Runner(self.graph, _plain(subject), subject.folder, subject.threads)
        self.pool = Trace()
        self.known = _Known()
        self.origins = Origins(subject)
        self.traced = _is_traced(subject)
        self.feeds = {graph: subject.arrays[name] for name, graph in subject.graph_inputs.items()}

    def run(self) -> Located:
        if self.subject.output >= len(self.graph.outputs):
            return Located(note="the graph has fewer outputs than the model")
        try:
            self._search()
        except Refusal as error:
            return Located(note=f"PyTorch refuses these inputs: {error}")
        except OutOfTime:
            self.known.notes.append("the time for the search ran out")
        except MemoryError as error:
            self.known.notes.append(str(error) or "there is not enough memory for the search")
        return self._located()

    def _search(self) -> None:
        self._choose_output()
        if self.error == 0.0:
            self.known.notes.append(
                "with optimisations off the nodes, run one by one, agree with PyTorch"
            )
            return
        if not self._by_name():
            self._by_value()
        guilty = self.known.guilty
        if guilty is None:
            return
        self.known.inside = guilty
        if len(self.known.lowering_of) > 1:
            self.known.inside = self._within(guilty, self.known.lowering_of)
        inner = search_body(
            self.runner, self.known.inside, self.known.values, self.pool, self.store, self.deadline
        )
        self.known.inside = inner or self.known.inside

    def _choose_output(self) -> None:
        """Take the output that diverged, and another that does where this one agrees alone.

        A runtime that refuses to run a model refuses all outputs, over one node behind one.
        """
        expected = self.subject.eager.run(self.subject.arrays).arrays
        names = self.graph.outputs[: len(expected)]
        actual = run_until(self.runner, self.feeds, names)
        first = self.subject.output
        for place in (first, *(p for p in range(len(names)) if p != first)):
            self.place, self.output, self.expected = place, names[place], expected[place]
            if not agree(actual[self.output], self.expected):
                self.error = distance(actual[self.output], self.expected)
                return
        self.error = 0.0

    def _by_name(self) -> bool:
        """Search with the program's names; false where the program is not what PyTorch runs."""
        program = self.subject.exported.program
        if program is None:
            return False
        pool = Trace()
        numbers = record_program(self.subject, program, pool, self.store)
        if numbers is None or self.place >= len(numbers):
            return False
        number = numbers[self.place]
        said = None if number is None else pool[number].array
        if not distance(said, self.expected) <= max(MAX_ERROR_RATIO * self.error, 1e-6):
            return False
        self.pool = pool
        for name, place in zip(self.graph.outputs, numbers, strict=False):
            if place is not None:
                pool.call(place, name)
        found = substitute_reference(
            self.runner, self.feeds, self.output, pool, self.store, self.deadline
        )
        self.known.values, self.known.moments, self.known.local_error = (
            found.values,
            found.moments,
            found.local_error,
        )
        if not found.wrong:
            self.known.notes.append(
                "no node alone is wrong: the error is that of many roundings, or of the inputs"
            )
            return True
        self.known.guilty = found.wrong[0]
        guilty = first_effective(
            self.runner,
            self.feeds,
            self.output,
            self.expected,
            self.error,
            found,
            self.deadline,
        )
        assert guilty is not None
        self.known.guilty = guilty
        self.known.lowering_of = tuple(self._unnamed(guilty.node, set(found.moments)))
        return True

    def _unnamed(self, node: Node, named: set[str]) -> list[Node]:
        """Return a node and those before it that belong to the lowering of the same operator."""
        found, pending = {node.index: node}, list(self.graph.depends_on_input(node))
        while pending:
            name = pending.pop()
            before = self.graph.producer.get(name)
            if name not in named and before is not None and before.index not in found:
                found[before.index] = before
                pending.extend(self.graph.depends_on_input(before))
        return [found[index] for index in sorted(found)]

    def _by_value(self) -> None:
        """Search among all that the untouched module computes, and a fresh export of it.

        The export costs the most, and is made where what PyTorch computes is too coarse.
        """
        subject = self.subject
        try:
            record_module(subject.eager, subject.arrays, self.pool, self.store, subject.workspace)
        except Refusal as error:
            self.known.notes.append(f"the model cannot be recorded: {error}")
        if self.graph.is_constant(self.output) and self.output in self.graph.producer:
            self.known.notes.append("the output does not depend on the inputs")
            node = self.graph.producer[self.output]
            self.known.inside = FaultyNode(node, self.output, _nothing())
            return
        search = self._new_search()
        guilty = self._first(search)
        if guilty is None or not search.is_plain(guilty):
            self._add_fresh_export()
            search = self._new_search()
            guilty = self._first(search)
        if guilty is None:
            region, _ = search.region()
            self.known.values = search.reference_inputs
            self.known.moments = {n: m[0] for n, m in search.matched.items()}
            self.known.local_error = search.local_error
            if region:
                self._guess(region, search)
            else:
                self.known.notes.append(
                    "no node alone is wrong: the error is that of many roundings, or of the inputs"
                )
            return
        lowering_of = search.lowering_of(guilty)
        self.known.guilty, self.known.lowering_of = guilty, tuple(lowering_of)
        self.known.values = dict(search.reference_inputs)
        search.override(guilty.value, guilty.moment)
        search.substitute_reference()
        self.known.moments = {n: m[0] for n, m in search.matched.items()}
        self.known.local_error = search.local_error

    def _new_search(self) -> Search:
        expected_outputs = {self.output: self.expected}
        return Search(
            self.runner, self.feeds, expected_outputs, self.pool, self.store, self.deadline
        )

    def _add_fresh_export(self) -> None:
        for exporter in ("torchscript", "dynamo") if self.traced else ("dynamo", "torchscript"):
            if add_fresh_export(
                self.subject, exporter, self.place, self.expected, self.error, self.pool, self.store
            ):
                return

    def _first(self, search: Search) -> FaultyNode | None:
        for _ in range(_ROUNDINGS):
            search.substitute_reference()
            guilty = search.find()
            if guilty is None:
                return None
            value = self.runner.run(guilty.node, search.reference_inputs).get(guilty.value)
            if not explained_by_rounding(value, guilty.moment, self.pool):
                return guilty
            search.override(guilty.value, guilty.moment)
        return None

    def _guess(self, region: list[Node], search: Search) -> None:
        """Name the first node whose value PyTorch does not have, where nothing else is known."""
        node = next((n for n in region if n.op_type not in PLUMBING), region[0])
        self.known.guilty = None
        self.known.notes.append(
            "the node is the first whose value PyTorch does not have; that it is wrong is not shown"
        )
        self.known.inside = FaultyNode(node, node.outputs[0], _nothing())

    def _within(self, guilty: FaultyNode, lowering_of: tuple[Node, ...]) -> FaultyNode:
        """Return the node inside a lowering of several that is wrong.

        First with what PyTorch is known to have computed, then with what the operator computes
        on its way, then with a fresh lowering of that operator alone.
        """
        best, left, values = guilty, lowering_of, self.known.values
        search: Search | None = None
        for deep in (False, True):
            if deep:
                self._expand(guilty.moment)
            search = self._inner_search(guilty, lowering_of)
            found = search.find()
            if found is None:
                continue
            before = tuple(search.lowering_of(found))
            if len(before) <= len(left):
                best, left, values = found, before, search.reference_inputs
            # The value of the whole lowering, put behind another node of it, proves little.
            if len(left) == 1 and (found.moment is not guilty.moment or found.node is guilty.node):
                break
        self.known.values = values
        odd = [node for node in left if node.op_type not in PLUMBING]
        if len(left) == 1 or not odd or odd == [best.node]:
            return best
        if len(odd) > 1:
            direct = search.direct(odd) if search is not None else None
            if direct is not None:
                return direct
            self.known.notes.append(
                f"{len(odd)} nodes compute this value, and which of them is wrong is not shown"
            )
        return FaultyNode(odd[-1], odd[-1].outputs[0], _nothing(best.moment))

    def _inner_search(self, guilty: FaultyNode, lowering_of: tuple[Node, ...]) -> Search:
        search = Search(
            self.runner,
            self.known.values,
            {guilty.value: guilty.moment.array},
            self.pool,
            self.store,
            self.deadline,
            lowering_of,
            self.known.moments,
            flat=True,
        )
        search.substitute_reference()
        return search

    def _expand(self, moment: TracedValue) -> None:
        called = self._called(moment)
        decompose(called, self.pool, self.store)
        exporter = "torchscript" if self.traced else "dynamo"
        lower(called, exporter, self.subject, self.pool, self.store)

    def _called(self, moment: TracedValue) -> TracedValue:
        """Return a moment of the same value whose operator can be called again."""
        same = [moment, *self.pool.find(moment.array)]
        return next((m for m in same if m.call is not None), moment)

    def _located(self) -> Located:
        known = self.known
        guilty = known.inside or known.guilty
        note = "; ".join(known.notes)
        if guilty is None:
            return Located(note=note, nodes=self._ladder(None))
        outer = known.guilty or guilty
        moments = self._kin(guilty, outer)
        node = GraphNode(
            name=guilty.node.proto.name,
            op_type=guilty.node.op_type,
            output=guilty.value,
            module=self.origins.module(guilty.node, guilty.value, *moments),
        )
        # What a node inside of a subgraph reads is no value of the graph: that of the node around is.
        around = [guilty] if guilty.value in self.graph.producer else [guilty, outer]
        expected = {g.value: g.moment.array for g in around if g.moment.number >= 0}
        return Located(
            node=node,
            source=self.origins.source(guilty.node, guilty.value, *moments),
            nodes=self._ladder(outer),
            note=note,
            inputs={
                name: np.array(known.values[name])
                for each in around
                for name in each.node.inputs
                if isinstance(known.values.get(name), np.ndarray)
            },
            expected={name: np.array(array) for name, array in expected.items()},
            proto=guilty.node.proto,
        )

    def _kin(self, guilty: FaultyNode, outer: FaultyNode) -> list[TracedValue]:
        """Return moments of the same origin as the guilty value, the surest first."""
        found = [guilty.moment, outer.moment]
        for moment in (guilty.moment, outer.moment):
            found += self.pool.find(moment.array) if moment.number >= 0 else []
        for moment in (guilty.moment, outer.moment):
            if moment.number >= 0:
                for child in self.pool.children(moment.number, 2):
                    found += self.pool.find(self.pool[child].array)
        return found

    def _ladder(self, guilty: FaultyNode | None) -> tuple[NodeError, ...]:
        return ladder(
            self.runner,
            self.feeds,
            self.output,
            self.expected,
            self.known.moments,
            self.known.local_error,
            guilty,
            self.origins,
        )


def _plain(subject: Subject) -> RuntimeSpec:
    """Return the runtime that diverged, ONNX Runtime with optimisations off."""
    runtime = subject.runtime
    if runtime.name == "onnxruntime":
        return dataclasses.replace(runtime, optimization="off", session_options={})
    return runtime


def _is_traced(subject: Subject) -> bool:
    """Return whether a file comes from the TorchScript exporter, which leaves Constant nodes."""
    exported = subject.exported
    if exported.exporter in ("torchscript", "dynamo"):
        return exported.exporter == "torchscript"
    own = exported.proto.producer_name == "pytorch"
    return own and any(node.op_type == "Constant" for node in exported.proto.graph.node)


def _nothing(moment: TracedValue | None = None) -> TracedValue:
    """Return a moment without a value, of the same origin as ``moment``."""
    if moment is None:
        return TracedValue(-1, np.zeros(0), "")
    return dataclasses.replace(moment, number=-1, array=np.zeros(0))
