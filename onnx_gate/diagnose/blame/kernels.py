"""Is a kernel wrong? Each node in the reference evaluator, on the values that ONNX Runtime had.

The evaluator has bugs of its own, so a node on which the two disagree is not yet a wrong kernel:
it is one if the graph comes right once the evaluator's value is put in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort
from onnx import helper
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.reference import ReferenceEvaluator

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.bench import EVALUATOR_BYTES, Answer, Bench
from onnx_gate.graph.graph import Graph, Node, read_graph
from onnx_gate.graph.run_node import node_model
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.onnxruntime import OnnxRuntimeSession

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
    error: float
    answer: Answer


@dataclass(frozen=True)
class Audit:
    """The nodes that were compared, of how many, the types that would not run, and suspects."""

    checked: int
    nodes: int
    refused: tuple[str, ...]
    suspects: tuple[Suspect, ...]


def audit(bench: Bench) -> tuple[Audit | None, str]:
    """Compare the nodes of the graph one by one.

    Returns ``None`` and a sentence where that is not possible.
    """
    size = bench.subject.exported.info().bytes
    if size > EVALUATOR_BYTES:
        return None, f"{size / 2**20:.0f} MiB are too much for it"
    return bench.apart(lambda: _Audit(bench).run(), 2 * SECONDS)


class _Audit:
    def __init__(self, bench: Bench) -> None:
        subject = bench.subject
        self._subject = subject
        self._deadline = Deadline(min(SECONDS, bench.left() / 2))
        self.model = onnx.load(str(subject.exported.path))
        if self.model.functions:
            self.model = onnx.inliner.inline_local_functions(self.model)
        self.graph: Graph = read_graph(self.model, subject.exported.path)
        self.feeds = {g: subject.arrays[name] for name, g in subject.graph_inputs.items()}
        self.refused: list[str] = []
        self.checked = 0

    def run(self) -> Audit:
        """Compare, and try the worst."""
        nodes = [node for node in self.graph.nodes if node.op_type != "Constant"]
        differing = sorted(self._differing(nodes), key=lambda item: -item[1])
        suspects = [
            Suspect(node.proto.name or node.outputs[0], node.op_type, error, self._without(values))
            for node, error, values in differing[:TRIED]
        ]
        kinds = tuple(sorted(set(self.refused)))
        return Audit(self.checked, len(nodes), kinds, tuple(suspects))

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
            self.refused.append(node.op_type)
            return None
        types = {n: _type(v) for n, v in feeds.items()}
        try:
            with np.errstate(all="ignore"):
                evaluator = ReferenceEvaluator(node_model(self.graph, node, types, stored))
                theirs = dict(zip(node.outputs, evaluator.run(None, feeds), strict=True))
            theirs = {n: np.asarray(v, ours[n].dtype) for n, v in theirs.items()}
        except Exception:
            self.refused.append(node.op_type)
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
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        kept = [node for node in model.graph.node if not set(node.output) & values.keys()]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        produced = {o for node in kept for o in node.output}
        read = {i for node in kept for i in node.input} | set(self.graph.outputs)
        fed = {n: v for n, v in values.items() if n in read and n not in produced}
        for name, value in fed.items():
            model.graph.input.append(onnx.ValueInfoProto(name=name, type=_type(value)))
        index = self._subject.output
        name = self.graph.outputs[index]
        if name in fed:
            return Answer(fed[name], len(self.graph.outputs))
        try:
            output = self._run(model, [name], {**self.feeds, **fed})[0]
        except Exception as error:
            return Answer(failed=str(error)[:200])
        return Answer(output, len(self.graph.outputs))

    def _run(
        self, model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, Array]
    ) -> Sequence[Any]:
        tapped = onnx.ModelProto()
        tapped.CopyFrom(model)
        del tapped.graph.output[:]
        del tapped.graph.value_info[:]
        tapped.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = ort.InferenceSession(
            tapped.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        declared = {value.name for value in session.get_inputs()}
        given = {name: array for name, array in feeds.items() if name in declared}
        if any(value.dtype == ml_dtypes.bfloat16 for value in given.values()):
            return OnnxRuntimeSession(session).run(given)
        values: Sequence[Any] = session.run(None, given)
        return values


def _type(value: Array) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(np_dtype_to_tensor_dtype(value.dtype), None)
