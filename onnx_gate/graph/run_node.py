"""One node alone: a model of that node only, run on whatever values are put in; and node after node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper
from onnx.helper import np_dtype_to_tensor_dtype

from onnx_gate.errors import GateError
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.session import PlainSession, Value
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.onnxruntime import provider_name
from onnx_gate.runtimes.open import open_session

Call = Callable[[Mapping[str, Value]], Sequence[Value]]

# Constants up to this many bytes are part of the one-node model, larger ones are fed to it.
_EMBEDDED = 4096
_FEEDABLE = frozenset("?bBhHiIlLqQefdOU")


class Runner:
    """Runs the nodes of a graph one by one, in ONNX Runtime without optimisations.

    Another runtime takes its place where the check that diverged was that runtime's.
    """

    def __init__(self, graph: Graph, runtime: RuntimeSpec, folder: Path) -> None:
        self.graph = graph
        self._runtime, self._folder = runtime, folder
        self._sessions: dict[Any, Call] = {}
        self._fixed: dict[str, Value] = {}

    def inside(self, body: Graph) -> Runner:
        """Return a runner for a subgraph."""
        return Runner(body, self._runtime, self._folder)

    def run(self, node: Node, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the node's outputs by name, ``None`` each where it refuses the values.

        ``values`` need not hold what is fixed; what they hold takes the place of a constant.
        """
        feeds = {
            name: self.value(name, values)
            for name in node.inputs
            if name in values or not self._embeds(name)
        }
        if any(value is None for value in feeds.values()) or not _is_safe(node, self, values):
            return dict.fromkeys(node.outputs)
        shaped = not self._runtime.engine.open_shapes
        key = (node.index, tuple((name, _type_key(value, shaped)) for name, value in feeds.items()))
        try:
            if key not in self._sessions:
                self._sessions[key] = self._open(node, feeds)
            outputs = self._sessions[key](feeds)
        except (Refusal, GateError, ValueError, TypeError):
            return dict.fromkeys(node.outputs)
        return dict(zip(node.outputs, outputs, strict=True))

    def value(self, name: str, values: Mapping[str, Value]) -> Value:
        """Return a value, a fixed one included."""
        if name in values:
            return values[name]
        if name in self.graph.constants:
            return self.graph.constants.array(name)
        if name not in self._fixed and name in self.graph.fixed:
            self._fixed.update(self.run(self.graph.producer[name], {}))
        return self._fixed.get(name)

    def _embeds(self, name: str) -> bool:
        constants = self.graph.constants
        if name not in constants:
            return False
        if not self._runtime.engine.open_shapes:
            # Not every engine takes weights that are no constants.
            return True
        array = constants.array(name)
        return array.nbytes <= _EMBEDDED or array.dtype.char not in _FEEDABLE

    def _open(self, node: Node, feeds: Mapping[str, Value]) -> Call:
        stored = [name for name in node.inputs if name not in feeds]
        other = not self._runtime.engine.open_shapes
        types = {n: type_of(v, shaped=other) for n, v in feeds.items()}
        model = node_model(self.graph, node, types, stored)
        if other:
            return self._open_other(onnx.shape_inference.infer_shapes(model))
        given = provider_name(self._runtime.provider), self._runtime.provider_options
        return PlainSession(model, provider=given).run

    def _open_other(self, model: onnx.ModelProto) -> Call:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "node.onnx"
        onnx.save(model, str(path))
        session = open_session(path, self._runtime)
        return session.run


def node_model(
    graph: Graph, node: Node, types: Mapping[str, onnx.TypeProto], stored: Sequence[str]
) -> onnx.ModelProto:
    """Return a model of one node.

    Its inputs are the keys of ``types``, its initializers the graph's of the names ``stored``;
    the outputs carry no type, which runtimes infer.
    """
    constants = [graph.constants.embedded(name) for name in stored]
    return model_of(node.proto, types, graph.opsets, graph.ir_version, constants)


def model_of(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    opsets: Sequence[onnx.OperatorSetIdProto],
    ir_version: int,
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """Return a model of one node that is in no graph."""
    inputs = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in types.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    proto = helper.make_graph([node], "node", inputs, outputs, constants)
    return helper.make_model(proto, opset_imports=opsets, ir_version=ir_version)


def _is_safe(node: Node, runner: Runner, values: Mapping[str, Value]) -> bool:
    """Say that ONNX Runtime will not end the process over the shapes that a node reads."""
    if node.op_type not in ("Einsum", "LSTM", "GRU", "RNN", "Concat"):
        return True
    shapes = [np.shape(runner.value(name, values)) for name in node.proto.input if name]
    if node.op_type == "Concat":
        # An empty part of another rank is refused by ending the process.
        return len({len(shape) for shape in shapes}) == 1
    if node.op_type != "Einsum":
        return len(shapes[0]) == 3 and 0 not in shapes[0] and shapes[0][2] == shapes[1][-1]
    equation = next(helper.get_attribute_value(a) for a in node.proto.attribute).decode()
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    return len(terms) == len(shapes) and all(
        "." in term
        or (
            len(term) == len(shape)
            and all(sizes.setdefault(a, n) == n for a, n in zip(term, shape, strict=True))
        )
        for term, shape in zip(terms, shapes, strict=True)
    )


def type_of(value: Value, *, shaped: bool = False) -> onnx.TypeProto:
    """Return the ONNX type of a value, of any shape or of its own: not every engine leaves it open."""
    if isinstance(value, list):
        element = type_of(value[0]) if value else type_of(np.zeros(0, np.float32))
        return helper.make_sequence_type_proto(element)
    kind = np_dtype_to_tensor_dtype(value.dtype) if value.dtype.kind not in "OU" else 8
    return helper.make_tensor_type_proto(kind, value.shape if shaped else None)


def _type_key(value: Value, shaped: bool) -> Any:
    if isinstance(value, list):
        return "list", _type_key(value[0], shaped) if value else ""
    return (value.dtype, value.shape) if shaped else value.dtype


def run_until(
    runner: Runner,
    feeds: Mapping[str, Value],
    outputs: Iterable[str],
    overrides: Mapping[str, Any] | None = None,
    look: Callable[[str, Value], None] | None = None,
) -> dict[str, Value]:
    """Return the values ``outputs`` of a graph, node by node, none held longer than it is needed.

    ``overrides`` take the place of what nodes compute. ``look`` sees every value, before it is overridden.
    """
    graph, wanted = runner.graph, tuple(outputs)
    nodes = [n for n in graph.ancestors(wanted) if not all(map(graph.is_constant, n.outputs))]
    last = {name: node.index for node in nodes for name in node.inputs}
    last |= dict.fromkeys(wanted, len(graph.nodes))
    values: dict[str, Value] = dict(feeds)
    for node in nodes:
        for name, value in runner.run(node, values).items():
            if look is not None:
                look(name, value)
            replacement = overrides.get(name) if overrides else None
            kept = value if replacement is None else _as(replacement, value)
            if name in last:
                values[name] = kept
        for name in node.inputs:
            if last.get(name) == node.index:
                values.pop(name, None)
    return {name: runner.value(name, values) for name in wanted}


def _as(replacement: Any, value: Value) -> Any:
    """Return a replacement in the dtype that the nodes behind expect."""
    if hasattr(value, "dtype") and value.dtype != replacement.dtype:
        return replacement.astype(value.dtype)
    return replacement
