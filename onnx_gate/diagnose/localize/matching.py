"""Which of PyTorch's values the values of a graph are, where the names of both say nothing.

Every node runs on PyTorch's own values, as far as they are known, and what it makes is looked up
among all that PyTorch computed. So errors do not add up along the graph: a node that is right makes
a value of PyTorch's whatever stands before it, and behind a wrong one nothing is found any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.localize.faulty import FaultyNode
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.diagnose.values import ArrayStore, agree, distance
from onnx_gate.graph.graph import Node
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array

# Names mean something where this share of a graph's is a fresh export's too: after a renaming
# hardly any is, and two exports of one module share all but what changed.
_TRUSTED = 0.6
# What PyTorch calls the products of ONNX.
_PRODUCTS = {"gemm": ("addmm", "mm", "linear"), "matmul": ("mm", "bmm", "linear")}


@dataclass(frozen=True)
class SearchScope:
    """What a search looks through: a graph, or ``nodes`` of it.

    ``values`` are those that its nodes are fed, ``expected_outputs`` maps values to what they have
    to be, ``None`` where that is not known. ``known`` are PyTorch's in the place of values that no
    node here makes; ``flat`` takes values for equal that differ in shape only.
    """

    runner: Runner
    values: Mapping[str, Value]
    expected_outputs: Mapping[str, Array | None]
    trace: Trace
    store: ArrayStore
    deadline: Deadline
    nodes: tuple[Node, ...] | None = None
    known: Mapping[str, TracedValue] = field(default_factory=dict)
    flat: bool = False


class Matching:
    """The values of a scope, and those of PyTorch's that each is equal to.

    ``reference_inputs`` are what nodes read: PyTorch's values where they are known. ``matched`` has
    for a value all of PyTorch's that it equals, ``local_error`` how far it is from the nearest.
    """

    def __init__(self, scope: SearchScope) -> None:
        self.scope = scope
        self.graph, self.trace = scope.runner.graph, scope.trace
        self.expected_outputs = scope.expected_outputs
        chosen = self.graph.ancestors(self.expected_outputs) if scope.nodes is None else scope.nodes
        self.nodes = [n for n in chosen if not all(self.graph.is_constant(o) for o in n.outputs)]
        self.reference_inputs: dict[str, Value] = dict(scope.values)
        self.matched: dict[str, list[TracedValue]] = {n: [t] for n, t in scope.known.items()}
        for name, value in scope.values.items():
            if name not in self.matched and name not in self.graph.producer:
                self.matched[name] = self.trace.find(value)
        self.local_error: dict[str, float] = {}
        # The numbers of all values that some value of the graph is.
        self.taken: set[int] = set()
        self._overridden: dict[str, TracedValue] = {}
        self._holds: dict[str, bool] = {}
        named = [
            node
            for node in self.nodes
            if (t := self.trace.named(node.outputs[0])) and t.operator == node.op_type
        ]
        self._trusts_names = len(named) > _TRUSTED * len(self.nodes)

    def override(self, value: str, traced: TracedValue) -> None:
        """Take PyTorch's value from now on; ``substitute_reference`` is to be called again."""
        self._overridden[value] = traced

    def substitute_reference(self) -> None:
        """Run every node on PyTorch's values, and look its outputs up."""
        for node in self.nodes:
            self.scope.deadline.check()
            for name, value in self.scope.runner.run(node, self.reference_inputs).items():
                self._learn(name, value)
        self.taken = {t.number for equal in self.matched.values() for t in equal}

    def _learn(self, name: str, value: Value) -> None:
        expected = self.expected_outputs.get(name)
        if expected is not None:
            self._holds[name] = agree(value, expected)
        if name in self._overridden:
            traced = self._overridden[name]
            self.matched[name] = [traced]
            self.local_error[name] = distance(value, traced.array)
            self.reference_inputs[name] = _fit(traced.array, value)
            return
        equal = self.equal_to(name, value)
        own = self.trace.named(name) if self._trusts_names else None
        if own is not None and own not in equal:
            equal = []
        self.matched.pop(name, None)
        if equal:
            self.matched[name] = equal
            self.local_error[name] = distance(_shaped(value, equal[0]), equal[0].array)
            value = _fit(equal[0].array, value)
        elif isinstance(value, np.ndarray):
            value = self.scope.store.put(value)
        self.reference_inputs[name] = value

    def equal_to(self, name: str, value: Value) -> list[TracedValue]:
        """Return PyTorch's values that equal one of the graph, those of its name first."""
        equal = self.trace.find(value)
        if not equal and self.scope.flat and isinstance(value, np.ndarray):
            equal = self.trace.find_flat(value)
        return sorted(equal, key=lambda t: t.name != name)

    def elsewhere(self) -> set[int]:
        """Return the numbers of PyTorch's values that nodes make of which no expected output is made."""
        known, found, own = dict(self.reference_inputs), set[int](), {*self.nodes}
        for node in self.graph.nodes if self.scope.nodes is None else ():
            if node in own or all(map(self.graph.is_constant, node.outputs)):
                continue
            for name, value in self.scope.runner.run(node, known).items():
                equal = self.equal_to(name, value)
                known[name] = _fit(equal[0].array, value) if equal else value
                found.update(t.number for t in equal)
        return found

    def region(self) -> tuple[list[Node], set[str]]:
        """Return the nodes between what agrees and the wrong outputs, and what agrees."""
        own = {name for node in self.nodes for name in node.outputs}
        border: set[str] = set()

        def wrong(node: Node) -> list[str]:
            read = self.graph.depends_on_input(node)
            agreeing = {name for name in read if self.agrees(name)}
            border.update(agreeing)
            return [name for name in read if name not in agreeing and name in own]

        outputs = [n for n in self.expected_outputs if not self._holds.get(n, False) and n in own]
        return self.graph.behind(outputs, wrong), border

    def agrees(self, name: str) -> bool:
        """Return whether a value is one of PyTorch's beyond chance.

        One that tells little is, where PyTorch made it of what its node reads.
        """
        equal = self.matched.get(name, ())
        if name in self._overridden or any(t.distinctive or t.name == name for t in equal):
            return True
        node = self.graph.producer.get(name)
        if not equal or node is None:
            return False
        read = {
            t.number for i in self.graph.depends_on_input(node) for t in self.matched.get(i, ())
        }
        return any(read & set(t.parents) for t in equal)

    def lowering_of(self, faulty: FaultyNode) -> list[Node]:
        """Return the faulty node and those before it whose values PyTorch does not have."""
        own = {name for node in self.nodes for name in node.outputs}
        return self.graph.back(faulty.node, lambda name: name not in own or self.agrees(name))

    def is_plain(self, faulty: FaultyNode) -> bool:
        """Return whether PyTorch makes the faulty value of just what the node reads, by what it is.

        An operator of another name may be one that exporters lower to several nodes.
        """
        alike = any(
            _is_called(faulty.node.op_type, t.operator)
            for t in self.trace.find(faulty.traced.array)
        )
        return alike and self.lowering_of(faulty) == [faulty.node] and self.is_direct(faulty)

    def is_direct(self, faulty: FaultyNode) -> bool:
        """Return whether PyTorch makes the value of just what the node reads."""
        equal = self.trace.find(faulty.traced.array)
        # PyTorch's operators do more at a time than the graph's: those of the same name first.
        alike = [t for t in equal if t.operator == faulty.node.op_type]
        return any(self.is_made_so(faulty.node, traced) for traced in alike or equal)

    def is_made_so(self, node: Node, traced: TracedValue) -> bool:
        """Return whether PyTorch made a value of what a node reads, and of nothing else."""
        read = [
            {t.number for t in self.matched.get(i, ())} for i in self.graph.depends_on_input(node)
        ]
        parents = {p for p in traced.parents if self.trace[p].depends_on_input}
        return all(numbers & parents for numbers in read) and parents <= set().union(*read)

    def is_doubtful(self, node: Node) -> bool:
        """Return whether a value is PyTorch's, but not the one that belongs there.

        It is another node's too, and PyTorch made it of something else than what this node reads;
        or the same holds for all of them.
        """
        for name in node.outputs:
            own = {t.number for t in self.matched.get(name, ())}
            others = [n for n in self.matched if n != name and self._shares(n, own)]
            if others and (
                not self._owns(node, name)
                or any(
                    self._owns(self.graph.producer[n], n)
                    for n in others
                    if n in self.graph.producer
                )
            ):
                return True
        return False

    def _shares(self, name: str, numbers: set[int]) -> bool:
        return any(t.number in numbers for t in self.matched[name])

    def _owns(self, node: Node, name: str) -> bool:
        return any(self.is_made_so(node, traced) for traced in self.matched[name])

    def parents(self, node: Node) -> list[int]:
        """Return PyTorch's values that a node reads, or that what it reads was made of."""
        numbers: list[int] = []
        pending, seen = list(self.graph.depends_on_input(node)), set()
        while pending:
            name = pending.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if self.matched.get(name):
                numbers += [t.number for t in self.matched[name]]
            elif name in self.graph.producer:
                pending += self.graph.depends_on_input(self.graph.producer[name])
        return numbers


def bare_name(operator: str) -> str:
    """Return ``softmax`` for both ``aten._softmax.default`` and ``Softmax``."""
    return as_called(operator).replace("_", "").lower()


def as_called(operator: str) -> str:
    """Return ``log_softmax`` for ``aten._log_softmax.default``."""
    parts = operator.split(".")
    return parts[1 if len(parts) > 1 else 0].strip("_")


def in_dtype(array: Array, value: Value) -> Array:
    """Return PyTorch's array in the dtype of the graph's value."""
    if not isinstance(value, np.ndarray) or value.dtype == array.dtype:
        return array
    with np.errstate(all="ignore"):
        return array.astype(value.dtype)


def indices(nodes: Iterable[Node]) -> set[int]:
    """Return the places of some nodes in their graph."""
    return {node.index for node in nodes}


def _is_called(op_type: str, operator: str) -> bool:
    """Return whether an operator of ONNX and one of PyTorch are the same, as far as names tell."""
    onnx, torch = bare_name(op_type), bare_name(operator).removeprefix("native")
    return onnx in torch or torch in onnx or torch in _PRODUCTS.get(onnx, ())


def _shaped(value: Value, traced: TracedValue) -> Value:
    """Return ``value`` in the shape of a traced value of as many elements."""
    if isinstance(value, np.ndarray) and value.size == traced.array.size:
        return value.reshape(traced.array.shape)
    return value


def _fit(array: Array, value: Value) -> Value:
    """Return PyTorch's array as the graph has this value: its dtype, and its shape if only that.

    ``value`` is what the graph computed, if anything.
    """
    array = in_dtype(array, value)
    if not isinstance(value, np.ndarray) or array.shape == value.shape:
        return array
    same = array.size == value.size and agree(value.reshape(-1), array.reshape(-1))
    return array.reshape(value.shape) if same else array
