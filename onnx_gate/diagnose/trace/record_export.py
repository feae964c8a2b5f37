"""A fresh export of the module: where it agrees with PyTorch, its values are checkpoints too."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import torch

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.trace.record_program import join_program
from onnx_gate.diagnose.trace.trace import Trace
from onnx_gate.diagnose.values import ArrayStore, distance
from onnx_gate.graph.graph import Graph, read_graph
from onnx_gate.graph.module_path import module_of_fx
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import to_tensor
from onnx_gate.verify.export.export import exportable, traceable
from onnx_gate.verify.source_lines import of_node, of_stack, own_source
from onnx_gate.verify.subject import Subject

# Weights of fewer bytes are copied into the graph.
_SMALL = 1024
# A fresh export this much nearer to PyTorch than the file is taken for right.
MAX_ERROR_RATIO = 0.1


def add_fresh_export(divergence: Divergence, exporter: str, trace: Trace) -> bool:
    """Export the module at the case's own sizes, and add the values of every node to ``trace``.

    Returns whether the export works and agrees; otherwise nothing is added.
    """
    subject = divergence.subject
    subject.folder.mkdir(parents=True, exist_ok=True)
    path = subject.folder / "fresh.onnx"
    try:
        with silence_exporters():
            program, graph = _export(subject, exporter, path)
    except Exception:
        return False
    runner = Runner(graph, subject.runtime, subject.folder)
    feeds = _feeds(subject, program, graph)
    if feeds is None:
        return False
    values, made = run_all(runner, feeds, divergence.store)
    if divergence.index >= len(graph.outputs):
        return False
    error = distance(values.get(graph.outputs[divergence.index]), divergence.expected)
    if not error <= max(MAX_ERROR_RATIO * divergence.error, 1e-6):
        return False
    inputs = {
        name: equal[0].number for name, array in feeds.items() if (equal := trace.find(array))
    }
    add_graph(graph, values, made, trace, _Origins(program, subject.workspace), inputs)
    return True


class _Origins:
    """Module and line of a fresh node, by the name of its value."""

    def __init__(self, program: Any, workspace: Path) -> None:
        self._nodes = {n.name: n for n in program.graph.nodes} if program is not None else {}
        self._workspace = workspace

    def of(self, node: onnx.NodeProto, name: str) -> tuple[str | None, Source | None]:
        known = self._nodes.get(name)
        if known is None:
            return None, own_source(of_node(node, self._workspace))
        trace = known.meta.get("stack_trace") or ""
        return module_of_fx(known.meta), own_source(of_stack(trace, self._workspace))


def add_graph(
    graph: Graph,
    values: Mapping[str, Value],
    made: Mapping[str, tuple[str, ...]],
    trace: Trace,
    origins: Any = None,
    sources: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Add the values of a graph that was run to ``trace``; return their numbers.

    ``sources`` are the traced values that the graph's inputs are.
    """
    numbers: dict[str, int] = dict(sources or {})
    for name, value in values.items():
        if name not in made or not hasattr(value, "dtype"):
            continue
        node = graph.producer[name]
        module, source = origins.of(node.proto, name) if origins is not None else (None, None)
        numbers[name] = trace.add(
            value,
            node.op_type,
            [numbers[i] for i in node.inputs if i in numbers],
            name=name,
            module=module,
            source=source,
        ).number
    return numbers


def run_all(
    runner: Runner, feeds: Mapping[str, Array], store: ArrayStore
) -> tuple[dict[str, Value], dict[str, tuple[str, ...]]]:
    """Run a whole graph node by node; return every value and what each was made of."""
    values: dict[str, Value] = dict(feeds)
    made: dict[str, tuple[str, ...]] = {}
    for node in runner.graph.nodes:
        if not runner.graph.depends_on_input(node) and all(
            runner.graph.is_constant(o) for o in node.outputs
        ):
            continue
        for name, value in runner.run(node, values).items():
            values[name] = store.put(value) if hasattr(value, "dtype") else value
            made[name] = node.inputs
    return values, made


def _export(subject: Subject, exporter: str, path: Path) -> tuple[Any, Graph]:
    """Return torch.export's program, ``None`` of a trace, and the graph."""
    eager = subject.eager
    tensors = {name: to_tensor(array) for name, array in subject.arrays.items()}
    # Tracing takes the fast path of attention, which has no translation, where it finds no
    # parameter that wants a gradient.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        if exporter == "torchscript":
            with traceable(eager):
                torch.onnx.export(
                    eager.module,
                    tuple(tensors[name] for name in eager.binding.order),
                    str(path),
                    dynamo=False,
                    verbose=False,
                    input_names=list(eager.binding.order),
                )
            return None, read_graph(onnx.load(str(path), load_external_data=False), path)
        args, kwargs = eager.binding.for_export(tensors)
        with exportable(eager, tensors):
            program = torch.onnx.export(
                eager.module, args, kwargs=kwargs, dynamo=True, verbose=False
            )
        assert program is not None
        return program.exported_program, _unsaved(program.model, path)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _unsaved(model: ir.Model, path: Path) -> Graph:
    """Return the graph of a model whose weights stay where they are, the module's own."""
    arrays: dict[str, Array] = {}
    held: list[tuple[ir.Value, Any]] = []
    try:
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is None or tensor.nbytes < _SMALL:
                continue
            arrays[name] = array = tensor.numpy()
            held.append((value, tensor))
            value.const_value = ir.ExternalTensor(
                "", 0, tensor.nbytes, tensor.dtype, shape=ir.Shape(array.shape), name=name
            )
        proto = ir.to_proto(model)
    finally:
        for value, tensor in held:
            value.const_value = tensor
    return read_graph(proto, path, arrays)


def _feeds(subject: Subject, program: Any, graph: Graph) -> dict[str, Array] | None:
    """Return the case's inputs by the names of the fresh graph's."""
    names = {name: name for name in subject.arrays}
    if program is not None:
        names = {p: name for name, p in join_program(subject.eager, program).items()}
        users = [str(user) for user in program.graph_signature.user_inputs]
        if len(users) == len(graph.inputs):
            renamed = zip(graph.inputs, users, strict=True)
            names |= {g: names[user] for g, user in renamed if user in names}
    if any(name not in names for name in graph.inputs):
        return None
    return {name: subject.arrays[names[name]] for name in graph.inputs}


@contextlib.contextmanager
def silence_exporters() -> Iterator[None]:
    """Keep what exporters print and warn to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
