"""Find the first node that is wrong in a graph whose values have no names that PyTorch knows.

Every node is run on PyTorch's own values, as far as they were found, and its outputs are looked
up among all that PyTorch computed. Behind a wrong node nothing is found any more. A node is guilty
where putting a value of PyTorch's in the place of its output makes what follows it agree again.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.graph.graph import Graph, Node
from onnx_gate.diagnose.graph.run_node import Runner
from onnx_gate.diagnose.graph.values import Store, Value, agree, distance, is_distinctive, kind_of
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.runtimes.base import Array

# Operators that move values about: never the characteristic one of a lowering.
PLUMBING = frozenset(
    {
        "Cast",
        "CastLike",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Shape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
# Operators looked at behind a value that was put right.
_LOOK = 16
# This many operators that agree without knowing anything else are enough.
_WEAK = 3
# Names mean something where this share of a graph's is a fresh export's too.
_TRUSTED = 0.6
# Values of PyTorch's tried in the place of one output.
_TRIES = 40
# Steps back from where the agreement ends: a wrong value can be another one of the model's.
_BACK = 6
# What PyTorch calls the products of ONNX.
_PRODUCTS = {"gemm": ("addmm", "mm", "linear"), "matmul": ("mm", "bmm", "linear")}
# Steps from what a node reads to what it may have had to compute.
_STEPS = 3


@dataclass(frozen=True)
class FaultyNode:
    """A node, the output that is wrong and the value that PyTorch has for it."""

    node: Node
    value: str
    moment: TracedValue


class Search:
    """The state of a search in one graph (or the nodes of it that ``expected_outputs`` depend on).

    ``expected_outputs`` maps values to what they have to be, ``None`` where that is not known. ``known``
    are the moments of values that no node here makes; ``flat`` takes values for equal that differ
    in shape only.
    """

    def __init__(
        self,
        runner: Runner,
        values: Mapping[str, Value],
        expected_outputs: Mapping[str, Array | None],
        pool: Trace,
        store: Store,
        deadline: Deadline,
        nodes: Iterable[Node] | None = None,
        known: Mapping[str, TracedValue] | None = None,
        flat: bool = False,
    ) -> None:
        self.runner, self.graph = runner, runner.graph
        self.pool, self._store, self._deadline, self._flat = pool, store, deadline, flat
        self.expected_outputs = expected_outputs
        chosen = self.graph.ancestors(expected_outputs) if nodes is None else nodes
        self.nodes = [n for n in chosen if not all(self.graph.is_constant(o) for o in n.outputs)]
        self.reference_inputs: dict[str, Value] = dict(values)
        self.matched: dict[str, list[TracedValue]] = {n: [m] for n, m in (known or {}).items()}
        for name, value in values.items():
            if name not in self.matched and name not in self.graph.producer:
                self.matched[name] = pool.find(value)
        self.local_error: dict[str, float] = {}
        self._right: dict[str, TracedValue] = {}
        self._taken: set[int] = set()
        self._holds: dict[str, bool] = {}
        self._unknown: set[int] = set()
        named = [
            n for n in self.nodes if (m := pool.named(n.outputs[0])) and m.operator == n.op_type
        ]
        self._trusts_names = len(named) > _TRUSTED * len(self.nodes)
        self._descendants: dict[int, set[int]] = {}

    def substitute_reference(self) -> None:
        """Run every node on PyTorch's values, and look its outputs up."""
        for node in self.nodes:
            self._deadline.check()
            for name, value in self.runner.run(node, self.reference_inputs).items():
                self._learn(name, value)
        self._taken = {m.number for found in self.matched.values() for m in found}

    def _learn(self, name: str, value: Value) -> None:
        anchor = self.expected_outputs.get(name)
        if anchor is not None:
            self._holds[name] = agree(value, anchor)
        if name in self._right:
            moment = self._right[name]
            self.matched[name] = [moment]
            self.local_error[name] = distance(value, moment.array)
            self.reference_inputs[name] = _fit(moment.array, value)
            return
        found = self._find(name, value)
        own = self.pool.named(name) if self._trusts_names else None
        if own is not None and own not in found:
            found = []
        self.matched.pop(name, None)
        if found:
            self.matched[name] = found
            self.local_error[name] = distance(_shaped(value, found[0]), found[0].array)
            value = _fit(found[0].array, value)
        elif isinstance(value, np.ndarray):
            value = self._store.put(value)
        self.reference_inputs[name] = value

    def _find(self, name: str, value: Value) -> list[TracedValue]:
        found = self.pool.find(value)
        if not found and self._flat and isinstance(value, np.ndarray):
            found = self.pool.find_flat(value)
        return sorted(found, key=lambda m: m.name != name)

    def override(self, value: str, moment: TracedValue) -> None:
        """Take PyTorch's value from now on; ``substitute_reference`` is to be called again."""
        self._right[value] = moment

    def find(self) -> FaultyNode | None:
        """Return the first guilty node, ``None`` where none can be shown to be."""
        region, border = self.region()
        if not region:
            return None
        self._unknown = {node.index for node in region}
        guilty = self._first(region)
        if guilty is not None and self._is_direct(guilty):
            return guilty
        # What it reads is a value of PyTorch's, but not the one that PyTorch reads there.
        return self._first(self._back(border)) or guilty

    def _first(self, nodes: Iterable[Node]) -> FaultyNode | None:
        chosen = sorted(nodes, key=lambda node: node.index)
        for place, node in enumerate(chosen):
            for name in node.outputs:
                self._deadline.check()
                for moment in self._proposals(node, name):
                    guilty = FaultyNode(node, name, moment)
                    if self._mends(guilty):
                        return self._best(chosen[place + 1 :], guilty)
        return None

    def _is_direct(self, guilty: FaultyNode) -> bool:
        """Return whether PyTorch makes the value of just what the node reads."""
        same = self.pool.find(guilty.moment.array)
        # PyTorch's operators do more at a time than the graph's: those of the same name first.
        alike = [m for m in same if m.operator == guilty.node.op_type]
        return any(self._is_made_so(guilty.node, moment) for moment in alike or same)

    def _is_made_so(self, node: Node, moment: TracedValue) -> bool:
        """Return whether PyTorch made a moment of what a node reads, and of nothing else."""
        read = [
            {m.number for m in self.matched.get(i, ())} for i in self.graph.depends_on_input(node)
        ]
        parents = {p for p in moment.parents if self.pool[p].depends_on_input}
        return all(numbers & parents for numbers in read) and parents <= set().union(*read)

    def _is_doubtful(self, node: Node) -> bool:
        """Return whether a value is PyTorch's, but not the one that belongs there.

        It is another node's too, and PyTorch made it of something else than what this node reads;
        or the same holds for all of them.
        """
        for name in node.outputs:
            own = {m.number for m in self.matched.get(name, ())}
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
        return any(m.number in numbers for m in self.matched[name])

    def _owns(self, node: Node, name: str) -> bool:
        return any(self._is_made_so(node, moment) for moment in self.matched[name])

    def region(self) -> tuple[list[Node], set[str]]:
        """Return the nodes between what agrees and the wrong anchors, and what agrees."""
        pending = [name for name in self.expected_outputs if not self._holds.get(name, False)]
        region: dict[int, Node] = {}
        border: set[str] = set()
        own = {node.index for node in self.nodes}
        while pending:
            node = self.graph.producer.get(pending.pop())
            if node is None or node.index in region or node.index not in own:
                continue
            region[node.index] = node
            for name in self.graph.depends_on_input(node):
                if self.agrees(name):
                    border.add(name)
                else:
                    pending.append(name)
        return [region[index] for index in sorted(region)], border

    def agrees(self, name: str) -> bool:
        """Return whether a value is one of PyTorch's beyond chance.

        One that tells little is, where PyTorch made it of what its node reads.
        """
        found = self.matched.get(name, ())
        if name in self._right or any(m.distinctive or m.name == name for m in found):
            return True
        node = self.graph.producer.get(name)
        if not found or node is None:
            return False
        read = {
            m.number for i in self.graph.depends_on_input(node) for m in self.matched.get(i, ())
        }
        return any(read & set(m.parents) for m in found)

    def lowering_of(self, guilty: FaultyNode) -> list[Node]:
        """Return the guilty node and those before it whose values PyTorch does not have."""
        found = {guilty.node.index: guilty.node}
        pending = list(self.graph.depends_on_input(guilty.node))
        own = {node.index for node in self.nodes}
        while pending:
            name = pending.pop()
            node = self.graph.producer.get(name)
            if node is None or node.index in found or node.index not in own or self.agrees(name):
                continue
            found[node.index] = node
            pending.extend(self.graph.depends_on_input(node))
        return [found[index] for index in sorted(found)]

    def is_plain(self, guilty: FaultyNode) -> bool:
        """Return whether PyTorch makes the guilty value of just what the node reads, by what it is.

        An operator of another name may be one that exporters lower to several nodes.
        """
        alike = any(
            _is_called(guilty.node.op_type, m.operator) for m in self.pool.find(guilty.moment.array)
        )
        return alike and self.lowering_of(guilty) == [guilty.node] and self._is_direct(guilty)

    def direct(self, nodes: Iterable[Node]) -> FaultyNode | None:
        """Return the first node for which PyTorch makes something else of just what it reads."""
        for node in nodes:
            for name in node.outputs:
                if self.matched.get(name):
                    continue
                for moment in self._proposals(node, name):
                    if self._is_made_so(node, moment):
                        return FaultyNode(node, name, moment)
        return None

    def _back(self, border: set[str]) -> list[Node]:
        level, found = set(border), {}
        for _ in range(_BACK):
            nodes = [self.graph.producer[name] for name in level if name in self.graph.producer]
            found.update({node.index: node for node in nodes})
            level = {name for node in nodes for name in self.graph.depends_on_input(node)}
        own = {node.index for node in self.nodes}
        nodes = [node for index, node in found.items() if index in own]
        return [node for node in nodes if self._is_doubtful(node)]

    def _proposals(self, node: Node, name: str) -> Iterator[TracedValue]:
        """Yield values that PyTorch may have in the place of an output."""
        value = self.reference_inputs.get(name)
        own = self.pool.named(name)
        found: dict[int, TracedValue] = {} if own is None else {own.number: own}
        anchor = self.expected_outputs.get(name)
        if anchor is not None:
            found.update({m.number: m for m in self.pool.find(anchor)})
        parents = self._parents(node)
        shape = value.shape if isinstance(value, np.ndarray) else None
        near = [self.pool[c] for p in parents for c in self.pool.children(p, _STEPS)]
        near.sort(key=lambda m: (not self._is_made_so(node, m), m.array.shape != shape, m.number))
        found.update({m.number: m for m in near})
        if node.index in self._unknown and isinstance(value, np.ndarray):
            first = min(parents, default=-1)
            found.update({m.number: m for m in self.pool.alike(value) if m.number > first})
            # Last: PyTorch may do nothing at all here.
            found.update({p: self.pool[p] for p in parents})
        tried: list[TracedValue] = []
        for moment in found.values():
            taken = moment.number in self._taken and moment.distinctive
            if taken and moment.number not in parents and not self._is_made_so(node, moment):
                continue
            if isinstance(value, np.ndarray) and kind_of(moment.array) != kind_of(value):
                continue
            if agree(value, moment.array):
                continue
            if not moment.distinctive and any(_equal(moment, other) for other in tried):
                continue
            yield moment
            tried.append(moment)
            if len(tried) == _TRIES:
                return

    def _parents(self, node: Node) -> list[int]:
        """Return the moments that a node reads, or that what it reads was made of."""
        found: list[int] = []
        pending, seen = list(self.graph.depends_on_input(node)), set()
        while pending:
            name = pending.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if self.matched.get(name):
                found += [m.number for m in self.matched[name]]
            elif name in self.graph.producer:
                pending += self.graph.depends_on_input(self.graph.producer[name])
        return found

    def _mends(self, guilty: FaultyNode) -> bool:
        """Return whether what follows agrees once the guilty value is PyTorch's.

        It has to be something that did not agree before, and that was computed: whatever moves a
        value about gives another of PyTorch's. An operator that reads nothing else (a ReLU) makes
        one value of PyTorch's of another wherever it stands, so it counts only where PyTorch's
        value is made of what the guilty node reads.
        """
        anchor = self.expected_outputs.get(guilty.value)
        if anchor is not None:
            return agree(guilty.moment.array, anchor)
        value = self.reference_inputs.get(guilty.value)
        arrays = [_in_dtype(guilty.moment.array, value)]
        if self._flat and isinstance(value, np.ndarray) and arrays[0].size == value.size:
            arrays.append(arrays[0].reshape(value.shape))
        return any(self._mends_with(guilty, array) for array in arrays)

    def _mends_with(self, guilty: FaultyNode, array: Array) -> bool:
        changed: dict[str, Value] = {guilty.value: array}
        values = ChainMap(changed, self.reference_inputs)
        looked = weak = 0
        for node in self.nodes:
            reads = any(name in changed for name in node.inputs)
            if node.index <= guilty.node.index or not reads:
                continue
            looked += 1
            if looked > _LOOK:
                break
            knows = self._knows_more(node, changed)
            for name, result in self.runner.run(node, values).items():
                changed[name] = result
                if self._agrees_now(node, name, result, guilty.moment):
                    if knows or is_distinctive(self.expected_outputs.get(name)):
                        return True
                    weak += 1
        return weak >= _WEAK or (weak > 0 and self._is_direct(guilty))

    def _agrees_now(self, node: Node, name: str, value: Value, moment: TracedValue) -> bool:
        """Return whether a value that did not agree is now one that PyTorch made of ``moment``."""
        anchor = self.expected_outputs.get(name)
        if anchor is not None:
            return agree(value, anchor)
        if node.index not in self._unknown or _only_moves(node, self.graph):
            return False
        heirs = self._heirs(moment)
        return is_distinctive(value) and any(
            m.number in heirs and m.number not in self._taken for m in self._find(name, value)
        )

    def _knows_more(self, node: Node, changed: Mapping[str, Value]) -> bool:
        """Return whether a node reads something of its own: a weight, or another value of the model."""
        return any(
            name not in changed and is_distinctive(self.runner.value(name, self.reference_inputs))
            for name in node.inputs
        )

    def _heirs(self, moment: TracedValue) -> set[int]:
        if moment.number not in self._descendants:
            found = self.pool.descendants(moment.number) - {moment.number}
            self._descendants[moment.number] = found
        return self._descendants[moment.number]

    def _best(self, later: list[Node], guilty: FaultyNode) -> FaultyNode:
        """Return the node that PyTorch's value is best put behind.

        Where the node's own value is one of PyTorch's, it may be one of several that pass it on:
        that of the same name as PyTorch's operator is guilty, else the last.
        """
        if guilty.node.index in self._unknown:
            return guilty
        reach, fits = {guilty.value}, [guilty]
        for node in later:
            if len(reach) > _BACK:
                break
            if not any(i in reach for i in node.inputs):
                continue
            reach.update(node.outputs)
            for name in node.outputs:
                value = self.reference_inputs.get(name)
                other = FaultyNode(node, name, guilty.moment)
                same = isinstance(value, np.ndarray) and value.shape == guilty.moment.array.shape
                if same and not agree(value, guilty.moment.array) and self._mends(other):
                    fits.append(other)
        operators = {_bare(m.operator) for m in self.pool.find(guilty.moment.array)}
        called = [g for g in fits if any(_bare(g.node.op_type) in o for o in operators)]
        return called[0] if called else fits[-1]


def _bare(operator: str) -> str:
    """Return ``softmax`` for both ``aten._softmax.default`` and ``Softmax``."""
    parts = operator.split(".")
    return parts[1 if len(parts) > 1 else 0].replace("_", "").lower()


def _is_called(op_type: str, operator: str) -> bool:
    """Say that an operator of ONNX and one of PyTorch are the same, as far as their names tell."""
    onnx, torch = _bare(op_type), _bare(operator).removeprefix("native")
    return onnx in torch or torch in onnx or torch in _PRODUCTS.get(onnx, ())


def _equal(a: TracedValue, b: TracedValue) -> bool:
    return a.array.dtype == b.array.dtype and np.array_equal(a.array, b.array)


def _only_moves(node: Node, graph: Graph) -> bool:
    """Return whether a node puts the elements of one value elsewhere and does nothing else."""
    return node.op_type in PLUMBING and graph.depends_on_input(node) == tuple(node.proto.input[:1])


def _shaped(value: Value, moment: TracedValue) -> Value:
    """Return ``value`` in the shape of a moment of as many elements."""
    if isinstance(value, np.ndarray) and value.size == moment.array.size:
        return value.reshape(moment.array.shape)
    return value


def _in_dtype(array: Array, value: Value) -> Array:
    """Return PyTorch's array in the dtype of the graph's value."""
    if not isinstance(value, np.ndarray) or value.dtype == array.dtype:
        return array
    with np.errstate(all="ignore"):
        return array.astype(value.dtype)


def _fit(array: Array, value: Value) -> Value:
    """Return PyTorch's array as the graph has this value: its dtype, and its shape if only that.

    ``value`` is what the graph computed, if anything.
    """
    array = _in_dtype(array, value)
    if not isinstance(value, np.ndarray) or array.shape == value.shape:
        return array
    same = array.size == value.size and agree(value.reshape(-1), array.reshape(-1))
    return array.reshape(value.shape) if same else array
