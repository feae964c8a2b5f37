"""The faulty node alone: does its kernel make the error, or does it compute what it is told to?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from onnx_gate.diagnose.bench import EVALUATOR, Bench
from onnx_gate.diagnose.blame.agreement import SAME_SHARE
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.blame.kernels import evaluated
from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.values import agree, distance
from onnx_gate.graph.graph import Graph, Node, read_graph
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.report.model.diagnosis import Blame, Evidence
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.subject import Subject


def decide_on_node(
    subject: Subject, blamed: BlameResult, located: Located, seconds: float = EVALUATOR
) -> BlameResult:
    """Decide an undecided blame at the faulty node, held against the reference evaluator.

    For models that are too large for it as a whole. Anything but an undecided blame of the plain
    graph is returned as it is, and so is one that this cannot decide either; but an exporter that is
    blamed as all other nodes are right is not, where the faulty one is fed NaN or infinity.
    """
    found = located.node
    if blamed.blame == "exporter" and blamed.decided_by == "all nodes" and found is not None:
        return _on_nonfinite(subject, blamed, located, seconds)
    if blamed.blame != "undecided" or blamed.plain_agrees is not False or found is None:
        return blamed
    bench = Bench(subject, seconds)
    answers, _ = bench.apart(lambda: _answers(subject, located, found.output), EVALUATOR)
    if answers is None:
        return _on_nonfinite(subject, blamed, located, bench.left())
    ours, theirs, expected = answers
    blame = _blame(ours, theirs, expected)
    if blame == "exporter" and subject.spec.reference is not None:
        blame = "conversion"
    # The graph of a committed file may be old as well as wrong.
    elif blame == "exporter" and subject.exported.exporter == "file":
        blame = None
    against = subject.spec.against
    node = f"{found.op_type} {found.name or found.output}"
    evidence = Evidence(
        kind="node",
        experiment=f"{node} alone, on {against}'s values, in the ONNX reference evaluator",
        outcome=f"{_off(theirs, expected)} from {against}, {_off(ours, theirs)} from ONNX Runtime",
        agrees=agree(theirs, expected),
        error=distance(theirs, expected),
    )
    blamed = replace(blamed, evidence=(*blamed.evidence, evidence))
    if blame is None:
        return blamed
    note = f"the kernel of {node} is wrong" if blame == "kernel" else ""
    return replace(blamed, blame=blame, decided_by="node", note=note).marked()


@dataclass(frozen=True)
class _LoneNode:
    """A node on PyTorch's values, and what ONNX Runtime and PyTorch make of it."""

    graph: Graph
    node: Node
    feeds: Mapping[str, Value]
    name: str
    ours: Value
    expected: Array

    def evaluated(self, feeds: Mapping[str, Value]) -> Array:
        """Return what the reference evaluator makes of it."""
        return np.asarray(evaluated(self.graph, self.node, feeds)[self.name])


def _alone(subject: Subject, located: Located, name: str) -> _LoneNode | None:
    """Return the node that makes ``name``, ``None`` where it cannot be run alone."""
    graph = read_graph(subject.exported.proto, subject.exported.path)
    node = graph.producer.get(name)
    if name not in located.expected or node is None or any(True for _ in graph.bodies(node)):
        return None
    runner = Runner(graph, subject.runtime, subject.folder)
    feeds: dict[str, Value] = {n: runner.value(n, located.inputs) for n in node.inputs}
    ours = runner.run(node, feeds).get(name)
    return _LoneNode(graph, node, feeds, name, ours, located.expected[name])


def _answers(subject: Subject, located: Located, name: str) -> tuple[Array, Array, Array] | None:
    """Return what ONNX Runtime, the evaluator and PyTorch make of the inputs of the node of ``name``."""
    alone = _alone(subject, located, name)
    if alone is None:
        return None
    theirs = alone.evaluated(alone.feeds)
    return None if alone.ours is None else (np.asarray(alone.ours), theirs, alone.expected)


def _on_nonfinite(
    subject: Subject, blamed: BlameResult, located: Located, seconds: float
) -> BlameResult:
    """Blame the kernel that makes of PyTorch's own NaN what PyTorch does not, where ONNX has no word on it.

    The evaluator runs the operator on numbers and fails on these: the specification says nothing.
    """
    node = located.node
    assert node is not None
    bench = Bench(subject, seconds)
    why, _ = bench.apart(lambda: _undefined(subject, located, node.output), EVALUATOR)
    if not why:
        return blamed
    against = subject.spec.against
    evidence = Evidence(
        kind="node",
        experiment=f"{node.op_type} {node.name or node.output} alone, on {against}'s values, which "
        "are not all finite, in the ONNX reference evaluator",
        outcome=f"it fails, where it runs with zeros for them: {why}",
        agrees=False,
    )
    engine = subject.runtime.name if subject.runtime.name != PLAIN.name else "ONNX Runtime"
    told = (
        f"{node.op_type} is fed NaN or infinity, of which ONNX does not say what it makes: {engine} "
        f"makes another thing of it than {against}"
    )
    remedy = f"keep NaN and infinity from what {node.op_type} reads, as torch.nan_to_num does"
    return replace(
        blamed,
        blame="kernel",
        decided_by="node",
        evidence=(*blamed.evidence, evidence),
        likely=told,
        remedy=remedy,
        note="",
    ).marked()


def _undefined(subject: Subject, located: Located, name: str) -> str:
    """Return how the evaluator fails on a node's values for not being finite, empty where it does not."""
    alone = _alone(subject, located, name)
    if alone is None:
        return ""
    finite = {n: _zeroed(v) for n, v in alone.feeds.items()}
    same = alone.ours is not None and agree(np.asarray(alone.ours), alone.expected)
    if same or all(finite[n] is v for n, v in alone.feeds.items()):
        return ""
    alone.evaluated(finite)
    try:
        alone.evaluated(alone.feeds)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def _zeroed(value: Value) -> Value:
    """Return a value with zeros for what is not finite in it, and itself where all is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or np.isfinite(value).all():
        return value
    return np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)


def _blame(ours: Array, theirs: Array, expected: Array) -> Blame | None:
    error = distance(ours, expected)
    if agree(ours, expected):
        return None
    if agree(theirs, expected):
        return "kernel"
    same = agree(ours, theirs)
    if np.isfinite(error):
        same |= distance(ours, theirs) <= SAME_SHARE * error
    return "exporter" if same else None


def _off(actual: Array, expected: Array) -> str:
    error = distance(actual, expected)
    return f"{error:.1e} of the scale" if np.isfinite(error) else "another shape or other NaN"
