"""What is looked for, and with what: one output of the graph that is not PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.values import ArrayStore, agree, distance, kind_of, output_error
from onnx_gate.graph.graph import Graph, read_graph
from onnx_gate.graph.run_node import Runner, run_until
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.subject import Subject


@dataclass(frozen=True)
class Divergence:
    """One output of a graph, run node by node, beside what PyTorch says it should be.

    ``output`` is its name in the graph and ``index`` its place among the outputs. ``feeds`` are the
    case's inputs by the graph's names, ``expected`` is PyTorch's value of the output and ``error``
    the graph's distance from it, 0 where they agree. ``of_dtype``: it is one of the dtype alone.
    """

    subject: Subject
    runner: Runner
    feeds: Mapping[str, Array]
    output: str
    index: int
    expected: Array
    error: float
    of_dtype: bool
    store: ArrayStore
    deadline: Deadline

    def error_of(self, value: Value) -> float:
        """Return the error of a value of the output, on the scale that its check has."""
        if self.index == self.subject.output and isinstance(value, np.ndarray):
            value = self.subject.judged(value, self.subject.arrays, self.expected)
        error = distance(value, self.expected)
        if not np.isfinite(error) or kind_of(self.expected) != "f":
            return error
        return output_error(value, self.expected, self.subject.noise)

    @property
    def graph(self) -> Graph:
        """The graph that is looked through."""
        return self.runner.graph

    @property
    def took_file(self) -> bool:
        """Whether a node that the runtime refuses alone says nothing, as it takes the whole graph.

        ONNX Runtime takes alone whatever node it takes in a graph; a converter need not.
        """
        return not self.subject.runtime.engine.plain and not self.subject.check.refused


def find_divergence(subject: Subject, store: ArrayStore, deadline: Deadline) -> Divergence:
    """Run the graph and take the output that diverged, or another that does where this one agrees.

    A runtime that refuses to run a model refuses all outputs, over one node behind one. Raises
    ``Refusal`` where PyTorch does not take the inputs.
    """
    graph = read_graph(subject.exported.proto, subject.exported.path)
    runner = Runner(graph, subject.plain_runtime, subject.folder)
    feeds = subject.feeds()
    expected = subject.eager.run(subject.arrays).arrays
    names = graph.outputs[: len(expected)]
    actual = run_until(runner, feeds, names)
    others = (i for i in range(len(names)) if i != subject.output)
    order = (subject.output, *others)
    own = actual[names[subject.output]]
    if isinstance(own, np.ndarray):
        judged = subject.judged(own, subject.arrays, expected[subject.output])
        actual = {**actual, names[subject.output]: judged}
    off = [i for i in order if not agree(actual[names[i]], expected[i])]
    retyped = [i for i in order if _other_dtype(actual[names[i]], expected[i])]
    index = next(iter((*off, *retyped)), subject.output)
    return Divergence(
        subject,
        runner,
        feeds,
        names[index],
        index,
        expected[index],
        distance(actual[names[index]], expected[index]) if off else 0.0,
        bool(retyped) and not off,
        store,
        deadline,
    )


def _other_dtype(actual: Value, expected: Array) -> bool:
    return isinstance(actual, np.ndarray) and actual.dtype != expected.dtype
