"""The node at fault in a graph whose values have no names that PyTorch knows.

The idea
    A node is at fault where putting a value of PyTorch's in the place of its output makes what
    follows it agree with PyTorch again. This needs no names, no module structure and no knowledge
    of what exporters write: only the values of both sides (``matching``) and one question, asked of
    one node after the other, in topological order.

    It is a delta-debugging of causes (Zeller, "Isolating cause-effect chains from computer
    programs", FSE 2002): what is changed in a failing run is not its input but one value in its
    middle, and the change that makes it succeed is the cause. PyTorch's run of the same inputs is
    the succeeding one.

The invariant
    All nodes before the one that is looked at read PyTorch's values. So whatever is wrong behind a
    node is born in it or behind it, and the first that *repairs* is where the error is born. A node
    counts as repairing only by something that it did not have before and that was computed: a value
    of the region between what agrees and the wrong output, which equals a value that PyTorch made
    of the one that was put in, and that no other node has already. What merely moves a value about
    (a Transpose, a Slice) gives another of PyTorch's values for nothing, and so does a ReLU that
    reads nothing else; they are no witnesses.

    Where the agreement ends is not always where the error is born. Swapped inputs or a missing
    residual leave values that *are* PyTorch's, and belong elsewhere. So where the node that was
    found reads something else than PyTorch's operator does, a few steps back from the border are
    looked at again, among values that two nodes claim.

What it costs
    Running the graph once on PyTorch's values, and per node of the region at most ``_TRIES``
    proposals of at most ``_LOOK`` node runs each: linear in the region, which is what lies between
    the last agreement and the output, and mostly a few nodes. Values are looked up by samples of
    their elements (``Trace.find``), in full only where these agree.

The constants
    All are limits of patience, not of precision: a larger one finds no less and takes longer. What
    each prevents stands beside it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from onnx_gate.diagnose.localize.faulty import FaultyNode
from onnx_gate.diagnose.localize.matching import Matching, SearchScope, bare_name, in_dtype, indices
from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.diagnose.values import agree, is_distinctive, kind_of
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array

# Operators that move values about: never the characteristic one of a lowering.
PLUMBING = frozenset(
    {
        *("Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape"),
        *("Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)
# Operators looked at behind a value that was put right. A witness is next to it or, where a
# lowering has several nodes, a few further on; running on to the output would make every proposal
# as dear as the graph.
_LOOK = 16
# This many operators that agree without knowing anything else are enough: one may by chance (a
# ReLU of anything positive), three in a row hardly do.
_WEAK = 3
# Values of PyTorch's tried in the place of one output. They come in the order of their likelihood,
# and a shape that a model uses everywhere has hundreds.
_TRIES = 40
# Steps back from where the agreement ends: a wrong value can be another one of the model's, and
# what is made of it by operators that do not mix it with anything else agrees as well.
_BACK = 6
# Steps from what a node reads to what it may have had to compute: the operators that one node of a
# graph stands for (a Gemm is a transpose, a product and a sum).
_STEPS = 3


class Search:
    """One search in one scope; ``matching`` is what it knows of the values."""

    def __init__(self, scope: SearchScope) -> None:
        self.scope = scope
        self.matching = Matching(scope)
        self._graph, self._trace = scope.runner.graph, scope.trace
        self._unknown: set[int] = set()
        self._descendants: dict[int, set[int]] = {}

    def find(self) -> FaultyNode | None:
        """Return the first faulty node, ``None`` where none can be shown to be."""
        region, border = self.matching.region()
        if not region:
            return None
        self._unknown = indices(region)
        faulty = self._first(region)
        if faulty is not None and self.matching.is_direct(faulty):
            return faulty
        # What it reads is a value of PyTorch's, but not the one that PyTorch reads there.
        return self._first(self._back(border)) or faulty

    def direct(self, nodes: Iterable[Node]) -> FaultyNode | None:
        """Return the first node for which PyTorch makes something else of just what it reads.

        That is not what all of them make together, of which the first may read all that PyTorch reads.
        """
        expected = self.matching.expected_outputs
        whole = {t.number for array in expected.values() for t in self._trace.find(array)}
        for node in nodes:
            for name in node.outputs:
                if self.matching.matched.get(name):
                    continue
                for traced in self._proposals(node, name):
                    if traced.number in whole and name not in expected:
                        continue
                    if self.matching.is_made_so(node, traced):
                        return FaultyNode(node, name, traced)
        return None

    def _first(self, nodes: Iterable[Node]) -> FaultyNode | None:
        chosen = sorted(nodes, key=lambda node: node.index)
        for index, node in enumerate(chosen):
            for name in node.outputs:
                self.scope.deadline.check()
                for traced in self._proposals(node, name):
                    faulty = FaultyNode(node, name, traced)
                    if self._repairs(faulty):
                        return self._best(chosen[index + 1 :], faulty)
        return None

    def _back(self, border: set[str]) -> list[Node]:
        level = set(border)
        before: dict[int, Node] = {}
        producer = self._graph.producer
        for _ in range(_BACK):
            nodes = [producer[name] for name in level if name in producer]
            before.update({node.index: node for node in nodes})
            level = {name for node in nodes for name in self._graph.depends_on_input(node)}
        own = indices(self.matching.nodes)
        return [n for i, n in before.items() if i in own and self.matching.is_doubtful(n)]

    def _proposals(self, node: Node, name: str) -> Iterator[TracedValue]:
        """Yield values that PyTorch may have in the place of an output, the likeliest first."""
        matching = self.matching
        value = matching.reference_inputs.get(name)
        parents = matching.parents(node)
        tried: list[TracedValue] = []
        for traced in self._likely(node, name, value, parents).values():
            taken = traced.number in matching.taken and traced.distinctive
            if taken and traced.number not in parents and not matching.is_made_so(node, traced):
                continue
            if isinstance(value, np.ndarray) and kind_of(traced.array) != kind_of(value):
                continue
            if agree(value, traced.array):
                continue
            if not traced.distinctive and any(_equal(traced, other) for other in tried):
                continue
            yield traced
            tried.append(traced)
            if len(tried) == _TRIES:
                return

    def _likely(
        self, node: Node, name: str, value: Value, parents: list[int]
    ) -> dict[int, TracedValue]:
        """Return by number what may stand in the place of an output, in the order to try it.

        Of the value's own name; what the output has to be; what PyTorch made of what the node
        reads; and, where nothing is known of the value, all of its shape.
        """
        own = self._trace.named(name)
        likely: dict[int, TracedValue] = {} if own is None else {own.number: own}
        expected = self.matching.expected_outputs.get(name)
        if expected is not None:
            likely.update({t.number: t for t in self._trace.find(expected)})
        shape = value.shape if isinstance(value, np.ndarray) else None
        near = [self._trace[c] for p in parents for c in self._trace.children(p, _STEPS)]
        made_so = self.matching.is_made_so
        near.sort(key=lambda t: (not made_so(node, t), t.array.shape != shape, t.number))
        likely.update({t.number: t for t in near})
        if node.index in self._unknown and isinstance(value, np.ndarray):
            first = min(parents, default=-1)
            likely.update({t.number: t for t in self._trace.alike(value) if t.number > first})
            # Last: PyTorch may do nothing at all here.
            likely.update({p: self._trace[p] for p in parents})
        return likely

    def _repairs(self, faulty: FaultyNode) -> bool:
        """Return whether what follows agrees once the faulty value is PyTorch's.

        It has to be something that did not agree before, and that was computed: whatever moves a
        value about gives another of PyTorch's. An operator that reads nothing else (a ReLU) makes
        one value of PyTorch's of another wherever it stands, so it counts only where PyTorch's
        value is made of what the faulty node reads.
        """
        expected = self.matching.expected_outputs.get(faulty.value)
        if expected is not None:
            return agree(faulty.traced.array, expected)
        value = self.matching.reference_inputs.get(faulty.value)
        arrays = [in_dtype(faulty.traced.array, value)]
        if self.scope.flat and isinstance(value, np.ndarray) and arrays[0].size == value.size:
            arrays.append(arrays[0].reshape(value.shape))
        return any(self._repairs_with(faulty, array) for array in arrays)

    def _repairs_with(self, faulty: FaultyNode, array: Array) -> bool:
        changed: dict[str, Value] = {faulty.value: array}
        values = ChainMap(changed, self.matching.reference_inputs)
        looked = weak = 0
        for node in self.matching.nodes:
            reads = any(name in changed for name in node.inputs)
            if node.index <= faulty.node.index or not reads:
                continue
            looked += 1
            if looked > _LOOK:
                break
            knows = self._knows_more(node, changed)
            for name, result in self.scope.runner.run(node, values).items():
                changed[name] = result
                if self._agrees_now(node, name, result, faulty.traced):
                    if knows or is_distinctive(self.matching.expected_outputs.get(name)):
                        return True
                    weak += 1
        return weak >= _WEAK or (weak > 0 and self.matching.is_direct(faulty))

    def _agrees_now(self, node: Node, name: str, value: Value, traced: TracedValue) -> bool:
        """Return whether a value that did not agree is now one that PyTorch made of ``traced``."""
        expected = self.matching.expected_outputs.get(name)
        if expected is not None:
            return agree(value, expected)
        if node.index not in self._unknown or _only_moves(node, self._graph):
            return False
        heirs = self._heirs(traced)
        return is_distinctive(value) and any(
            t.number in heirs and t.number not in self.matching.taken
            for t in self.matching.equal_to(name, value)
        )

    def _knows_more(self, node: Node, changed: Mapping[str, Value]) -> bool:
        """Return whether a node reads something of its own: a weight, or another value of the model."""
        values = self.matching.reference_inputs
        return any(
            name not in changed and is_distinctive(self.scope.runner.value(name, values))
            for name in node.inputs
        )

    def _heirs(self, traced: TracedValue) -> set[int]:
        if traced.number not in self._descendants:
            heirs = self._trace.descendants(traced.number) - {traced.number}
            self._descendants[traced.number] = heirs
        return self._descendants[traced.number]

    def _best(self, later: list[Node], faulty: FaultyNode) -> FaultyNode:
        """Return the node that PyTorch's value is best put behind.

        Where the node's own value is one of PyTorch's, it may be one of several that pass it on:
        that of the same name as PyTorch's operator is faulty, else the last.
        """
        if faulty.node.index in self._unknown:
            return faulty
        reach, fits = {faulty.value}, [faulty]
        for node in later:
            if len(reach) > _BACK:
                break
            if not any(i in reach for i in node.inputs):
                continue
            reach.update(node.outputs)
            for name in node.outputs:
                value = self.matching.reference_inputs.get(name)
                other = FaultyNode(node, name, faulty.traced)
                same = isinstance(value, np.ndarray) and value.shape == faulty.traced.array.shape
                if same and not agree(value, faulty.traced.array) and self._repairs(other):
                    fits.append(other)
        operators = {bare_name(t.operator) for t in self._trace.find(faulty.traced.array)}
        called = [f for f in fits if any(bare_name(f.node.op_type) in o for o in operators)]
        return called[0] if called else fits[-1]


def _equal(a: TracedValue, b: TracedValue) -> bool:
    return a.array.dtype == b.array.dtype and np.array_equal(a.array, b.array)


def _only_moves(node: Node, graph: Graph) -> bool:
    """Return whether a node puts the elements of one value elsewhere and does nothing else."""
    return node.op_type in PLUMBING and graph.depends_on_input(node) == tuple(node.proto.input[:1])
