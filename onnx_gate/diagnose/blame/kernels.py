"""Is a kernel wrong? Each node in the reference evaluator, on the values that ONNX Runtime had.

The evaluator has bugs of its own, so a node on which the two disagree is not yet a wrong kernel:
it is one if the graph comes right once the evaluator's value is put in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeImplementationError

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.bench import EVALUATOR_BYTES, Answer, Bench
from onnx_gate.graph.edit import fed, with_outputs
from onnx_gate.graph.graph import Graph, Node, read_graph
from onnx_gate.graph.run_node import node_model, type_of
from onnx_gate.graph.session import PlainSession, Value
from onnx_gate.graph.walk import inlined
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array, first_line

SECONDS = 15.0
# From this many units of the precision on two kernels are looked at more closely.
SUSPECT = 100.0
# So many of the nodes that differ most are tried.
TRIED = 4
# Nodes of one run at first; then as many as fit the memory.
_WINDOW = 16


@dataclass(frozen=True)
class Suspect:
    """A node on which runtime and evaluator differ, and what the graph says without the runtime's.

    ``answer`` is the diverged output where the evaluator's value takes the place of the node's.
    """

    name: str
    op_type: str
    answer: Answer


@dataclass(frozen=True)
class Unrun:
    """A kind of node that the evaluator gave no value of; ``why`` is empty where it has none for it."""

    op_type: str
    why: str = ""


@dataclass(frozen=True)
class ComparedKernels:
    """The nodes that were compared, of how many, the kinds that gave no value, and suspects."""

    checked: int
    nodes: int
    refused: tuple[Unrun, ...]
    suspects: tuple[Suspect, ...]

    @property
    def all_agree(self) -> bool:
        """Whether every node was compared, and no two kernels are further apart than rounding."""
        return self.checked == self.nodes and not self.suspects


def audit(bench: Bench) -> tuple[ComparedKernels | None, str]:
    """Compare the nodes of the graph one by one.

    Returns ``None`` and a sentence where that is not possible.
    """
    size = bench.subject.exported.size
    if size > EVALUATOR_BYTES:
        return None, f"{size / 2**20:.0f} MiB are too much for it"
    return bench.apart(lambda: _Audit(bench).run(), 2 * SECONDS)


class _Audit:
    def __init__(self, bench: Bench) -> None:
        subject = bench.subject
        self._subject = subject
        self._deadline = Deadline(min(SECONDS, bench.left() / 2))
        self.model = inlined(onnx.load(str(subject.exported.path)))
        self.graph: Graph = read_graph(self.model, subject.exported.path)
        self.feeds = {g: subject.arrays[name] for name, g in subject.graph_inputs.items()}
        self.refused: list[Unrun] = []
        self.checked = 0

    def run(self) -> ComparedKernels:
        """Compare, and try the worst."""
        nodes = [node for node in self.graph.nodes if node.op_type != "Constant"]
        differing = sorted(self._differing(nodes), key=lambda item: -item[1])
        suspects = [
            Suspect(node.proto.name or node.outputs[0], node.op_type, self._without(values))
            for node, _, values in differing[:TRIED]
        ]
        first = {each.op_type: each for each in reversed(self.refused)}
        kinds = tuple(first[kind] for kind in sorted(first))
        return ComparedKernels(self.checked, len(nodes), kinds, tuple(suspects))

    def _differing(
        self, nodes: Sequence[Node]
    ) -> Iterator[tuple[Node, float, Mapping[str, Array]]]:
        begin, window = 0, _WINDOW
        while begin < len(nodes) and not self._deadline.passed():
            part = nodes[begin : begin + window]
            values = self._values(part)
            for node in part:
                difference = self._compare(node, values)
                if difference is not None:
                    yield node, *difference
                if self._deadline.passed():
                    break
            begin += window
            held = sum(v.nbytes for v in values.values() if isinstance(v, np.ndarray))
            window = max(1, min(len(nodes), int(window * self._subject.memory / (2 * held + 1))))

    def _values(self, nodes: Sequence[Node]) -> dict[str, Any]:
        """Return what ONNX Runtime, optimisations off, has for everything that these nodes touch."""
        known = {**self.feeds}
        wanted = [
            name
            for node in nodes
            for name in (*node.inputs, *node.outputs)
            if name not in known and name not in self.graph.constants
        ]
        names = list(dict.fromkeys(wanted))
        return {**known, **dict(zip(names, self._run(self.model, names, self.feeds), strict=True))}

    def _compare(
        self, node: Node, values: Mapping[str, Any]
    ) -> tuple[float, Mapping[str, Array]] | None:
        """Return how far the two are apart on a node, and the evaluator's values; else ``None``."""
        feeds = {n: values[n] for n in node.inputs if n not in self.graph.constants}
        stored = [n for n in node.inputs if n in self.graph.constants]
        ours = {n: values[n] for n in node.outputs}
        if not all(isinstance(v, np.ndarray) for v in (*feeds.values(), *ours.values())):
            self.refused.append(Unrun(node.op_type))
            return None
        try:
            made = evaluated(self.graph, node, feeds, stored)
            theirs = {n: np.asarray(v, ours[n].dtype) for n, v in made.items()}
        except Exception as failure:
            self.refused.append(Unrun(node.op_type, _words(failure)))
            return None
        self.checked += 1
        error = max(scale_error(ours[n], theirs[n]) for n in node.outputs)
        return (
            (error, theirs)
            if error > SUSPECT * max(eps_of(value.dtype) for value in ours.values())
            else None
        )

    def _without(self, values: Mapping[str, Array]) -> Answer:
        """Return the diverged output of the graph with these values in place of a node's."""
        model, given = fed(self.model, values)
        index = self._subject.output
        name = self.graph.outputs[index]
        if name in given:
            return Answer(given[name], len(self.graph.outputs))
        try:
            output = self._run(model, [name], {**self.feeds, **given})[0]
        except Exception as error:
            return Answer(failed=str(error)[:200])
        return Answer(output, len(self.graph.outputs))

    def _run(
        self, model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, Array]
    ) -> Sequence[Any]:
        return PlainSession(with_outputs(model, names)).run(feeds)


def evaluated(
    graph: Graph, node: Node, feeds: Mapping[str, Value], stored: Sequence[str] = ()
) -> dict[str, Value]:
    """Return what the reference evaluator makes of a node alone; it raises whatever it raises.

    ``stored`` are constants of the graph that are not among the ``feeds``.
    """
    model = node_model(graph, node, {n: type_of(v) for n, v in feeds.items()}, stored)
    with np.errstate(all="ignore"):
        made = ReferenceEvaluator(model).run(None, dict(feeds))
    return dict(zip(node.outputs, made, strict=True))


def _words(error: Exception) -> str:
    """Return what an error says, nothing where the evaluator has no implementation of the operator."""
    lacks = isinstance(error, (NotImplementedError, RuntimeImplementationError))
    return "" if lacks else f"{type(error).__name__}: {first_line(error)}"
