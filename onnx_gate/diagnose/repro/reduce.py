"""The smallest part of a graph that an optimiser makes wrong.

The idea
    What an optimiser fuses cannot be seen by looking at the values in between: a value that is
    asked for is an output, and ends the fusion that was looked for. So whole parts of the graph are
    cut out and run twice, optimised and not, on the values that go into them, and made smaller for
    as long as the two answers differ. That is delta debugging (Zeller and Hildebrandt, "Simplifying
    and isolating failure-inducing input", IEEE TSE 2002) on a graph, and as graphs have an order
    and a distance, most of it is bisection.

The invariant
    The part that is kept always differs, was run to see it, and ends in the same node. Each of the
    three passes only replaces it by a smaller one that differs too, so whatever cuts the search
    short, what is returned is a reproduction.

The passes
    1. *Where it ends.* By bisection over the topological order: the first node of which the graph
       up to it, as optimised, makes something else. This takes for granted that a difference stays
       once it is there. Where one is healed further on, another node is found than the first, and
       it differs as well.
    2. *How far back it reaches.* The nodes nearest to the last, in steps through the graph: twice
       as many until they differ, then by bisection. A fusion is a pattern around a node, so this
       ends after a handful.
    3. *What of it is needed.* Each node left out once. The result is not the smallest part there
       is, but one of which no single node can be left out (1-minimal, as in the paper).

What it costs
    For a graph of n nodes and a part of k, log2 n + 2 log2 k + k pairs of runs. A run cuts out,
    saves and opens a model, so the first pass is the dearest: its parts are half the graph. The
    values that go into a part are computed anew each time, which is one run more, and keeps no
    value of the graph in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.blame.kernels import SUSPECT
from onnx_gate.graph.extract import between, cut, open_ends
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.runtimes.open import open_session
from onnx_gate.verify.judge.judgement import is_floating

# Parts of up to this many nodes are tried without each of their nodes: of more, the repro's limit of
# seconds is spent on the third pass alone, and nobody reads what is left either.
_FEW = 24
# Half precision rounds to a part in a thousand; a tenth of the scale is no rounding in any.
_MOST = 0.1


@dataclass(frozen=True)
class Part:
    """Nodes, the values of their open ends, and what they make without optimisations."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


class Shrinker:
    """Looks for a small part of ``graph`` on which ``runtime`` and no optimisation differ."""

    def __init__(
        self,
        source: onnx.ModelProto,
        graph: Graph,
        feeds: Mapping[str, Array],
        runtime: RuntimeSpec,
        folder: Path,
        seconds: float,
    ) -> None:
        self._source, self._graph, self._feeds = source, graph, feeds
        self._runtime = runtime
        self._path = folder / "part.onnx"
        self._deadline = Deadline(seconds)

    def find(self, output: str) -> Part | None:
        """Return the part whose last node is the first to make a difference towards ``output``."""
        nodes = between(self._graph, [output], self._feeds)
        if not nodes or not self._differs(nodes, nodes[-1]):
            return None
        low, high = 0, len(nodes) - 1
        while low < high and not self._deadline.passed():
            middle = (low + high) // 2
            prefix = between(self._graph, nodes[middle].outputs, self._feeds)
            if self._differs(prefix, nodes[middle]):
                high = middle
            else:
                low = middle + 1
        last = nodes[high]
        chosen = self._near(last, between(self._graph, last.outputs, self._feeds))
        return self._part(self._thinned(chosen, last), last)

    def _near(self, last: Node, nodes: Sequence[Node]) -> list[Node]:
        """Return the fewest nodes, the closest to ``last`` first, that still make a difference."""
        ordered = self._by_distance(last)
        count = 1
        while count < len(ordered) and not self._differs(_sorted(ordered[:count]), last):
            if self._deadline.passed():
                return list(nodes)
            count *= 2
        low, high = count // 2 + 1, min(count, len(ordered))
        while low < high and not self._deadline.passed():
            middle = (low + high) // 2
            if self._differs(_sorted(ordered[:middle]), last):
                high = middle
            else:
                low = middle + 1
        return _sorted(ordered[:high])

    def _thinned(self, nodes: list[Node], last: Node) -> list[Node]:
        if len(nodes) > _FEW:
            return nodes
        for node in list(nodes):
            rest = [n for n in nodes if n is not node]
            if node is not last and not self._deadline.passed() and self._differs(rest, last):
                nodes = rest
        return nodes

    def _by_distance(self, last: Node) -> list[Node]:
        nodes, pending = {last.index: last}, [last]
        while pending:
            node = pending.pop(0)
            for name in node.inputs:
                before = self._graph.producer.get(name)
                if before is not None and before.index not in nodes:
                    nodes[before.index] = before
                    pending.append(before)
        return list(nodes.values())

    def _differs(self, nodes: Sequence[Node], last: Node) -> bool:
        try:
            part = self._part(nodes, last)
            actual = self._run(self._model(part), part.inputs, self._runtime)
        except Exception:
            return False
        return any(
            scale_error(a, e) > least_error(e)
            for a, e in zip(actual, part.outputs.values(), strict=True)
        )

    def _part(self, nodes: Sequence[Node], last: Node) -> Part:
        inputs = self._values(open_ends(self._graph, nodes))
        empty = cut(self._source, self._graph, nodes, inputs, dict.fromkeys(last.outputs))
        plain = self._run(empty, inputs, PLAIN)
        return Part(tuple(nodes), inputs, dict(zip(last.outputs, plain, strict=True)))

    def _model(self, part: Part) -> onnx.ModelProto:
        return cut(self._source, self._graph, part.nodes, part.inputs, part.outputs)

    def _values(self, names: Sequence[str]) -> dict[str, Array]:
        """Return values of the graph as they are without optimisations."""
        known = {name: self._feeds[name] for name in names if name in self._feeds}
        wanted = [name for name in names if name not in known]
        if not wanted:
            return known
        nodes = between(self._graph, wanted, self._feeds)
        inputs = {name: self._feeds[name] for name in open_ends(self._graph, nodes)}
        model = cut(self._source, self._graph, nodes, inputs, dict.fromkeys(wanted))
        return {**known, **dict(zip(wanted, self._run(model, inputs, PLAIN), strict=True))}

    def _run(
        self, model: onnx.ModelProto, feeds: Mapping[str, Array], spec: RuntimeSpec
    ) -> list[Array]:
        onnx.save(model, str(self._path))
        session = open_session(self._path, spec)
        return [np.asarray(value) for value in session.run(feeds)]


def least_error(array: Array) -> float:
    """Return the error of an array, relative to its scale, that no rounding of one node explains."""
    if not is_floating(array.dtype):
        return 0.0
    return min(SUSPECT * eps_of(array.dtype), _MOST)


def _sorted(nodes: Sequence[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.index)
