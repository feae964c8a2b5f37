"""A graph in which every 16-bit result is rounded as it is stored.

ONNX Runtime's CPU computes most operators of float16 in float32 and hands their results on without
rounding them. Here each node that computes gets its 16-bit inputs cast to float32, computes there,
as ONNX lets it accumulate, and its results are cast back before anything reads them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx.inliner import inline_local_functions

from onnx_gate.runtimes.bodies import bodies
from onnx_gate.runtimes.half_ranges import Scalars, Watched, least_of, lifted, measuring

DTYPES: Mapping[int, Any] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
"""The types of 16 bits, as NumPy has them."""


def limits(dtype: int) -> Any:
    """Return the ends and the steps of a type of 16 bits."""
    return ml_dtypes.finfo(DTYPES[dtype])  # type: ignore[no-untyped-call]


OUTPUTS = "graph outputs"
"""Stands for the graph's outputs among the nodes that stay in float32."""

# What runs graphs of its own, or holds other things than one tensor: nothing of it is rounded.
_LEFT = ("If", "Loop", "Scan", "Sequence", "Optional", "SplitToSequence", "ConcatFromSequence")
TYPED = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that hold the type of a result, or of what is inside."""


@dataclass
class Rounded:
    """A model whose 16-bit results are rounded; ``measured`` are these, in order.

    Their scalars are the last outputs of the model.
    """

    model: ModelProto
    measured: list[Scalars] = field(default_factory=list)


def rounded_model(model: ModelProto, wide: Collection[str] = ()) -> Rounded:
    """Return a copy of ``model`` that rounds.

    The nodes named in ``wide`` compute in float32 and hand that on to each other; with ``OUTPUTS``
    among them the graph returns its 16-bit results in float32. A node without a name goes by its
    output.
    """
    copy = ModelProto()
    copy.CopyFrom(inline_local_functions(model) if model.functions else model)
    opsets = {each.domain: each.version for each in copy.opset_import}
    types: dict[str, int] = {}
    while True:
        known = len(types)
        _infer(copy.graph, types, opsets)
        if len(types) == known:
            break
    rewriter = _Rewriter(types, opsets, frozenset(wide))
    measured = rewriter.graph(copy.graph, {}, top=True)
    del copy.graph.value_info[:]
    for dtype in sorted({each.watched.dtype for each in measured}):
        least = [float(limits(dtype).smallest_normal)]
        copy.graph.initializer.append(
            helper.make_tensor(least_of(dtype), TensorProto.FLOAT, [], least)
        )
    copy.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [])
        for each in measured
        for name in each.names
    )
    return Rounded(copy, measured)


def half_dtype(model: ModelProto) -> str | None:
    """Return the 16-bit dtype that a file computes in, ``None`` where none of its results has one."""
    if not any(_named(each) for each in (model.graph, *model.functions)):
        return None
    bare = ModelProto()  # what the results are does not depend on what the weights are
    bare.CopyFrom(_without_weights(model))
    found = {each.watched.dtype for each in rounded_model(bare).measured}
    return next((DTYPES[each].name for each in sorted(found)), None)


def _without_weights(model: ModelProto) -> ModelProto:
    copy = ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    copy.graph.node.extend(model.graph.node)
    copy.graph.input.extend(model.graph.input)
    copy.graph.output.extend(model.graph.output)
    copy.graph.value_info.extend(model.graph.value_info)
    copy.graph.initializer.extend(
        TensorProto(name=t.name, data_type=t.data_type, dims=t.dims)
        for t in model.graph.initializer
    )
    return copy


def _named(graph: Any) -> bool:
    """Return whether anything in a graph or function is said to be of 16 bits."""
    if isinstance(graph, GraphProto):
        if any(tensor.data_type in DTYPES for tensor in graph.initializer):
            return True
        if any(v.type.tensor_type.elem_type in DTYPES for v in (*graph.input, *graph.output)):
            return True
    typed = (
        (each.name in TYPED and each.i in DTYPES)
        or (each.HasField("t") and each.t.data_type in DTYPES)
        for node in graph.node
        for each in node.attribute
    )
    return any(typed) or any(_named(body) for node in graph.node for body in bodies(node))


def _infer(graph: GraphProto, types: dict[str, int], opsets: Mapping[str, int]) -> None:
    """Add the element types that are known of a graph's values and of those in its bodies.

    onnx's own inference ends at operators that are ONNX Runtime's own, as half-precision files have.
    """
    for tensor in graph.initializer:
        types.setdefault(tensor.name, tensor.data_type)
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            types.setdefault(value.name, value.type.tensor_type.elem_type)
    for node in graph.node:
        for body in bodies(node):
            _infer(body, types, opsets)
        if any(name and name not in types for name in node.output):
            for name, made in zip(node.output, _made(node, types, opsets), strict=False):
                if name and made:
                    types.setdefault(name, made)


def _made(node: NodeProto, types: Mapping[str, int], opsets: Mapping[str, int]) -> Iterable[int]:
    """Return the element types of a node's outputs, 0 where one is not known."""
    for attribute in node.attribute:
        if attribute.HasField("t") and node.op_type.startswith("Constant"):
            return [attribute.t.data_type]
        if attribute.name in TYPED[:3] and attribute.i:
            return [attribute.i] * len(node.output)
    given = [types.get(name, 0) for name in node.input]
    inside = list(bodies(node))
    if inside:
        skipped = 1 if node.op_type == "Loop" else 0  # whether to go on
        return [types.get(value.name, 0) for value in inside[0].output][skipped:]
    schema = _schema(node.domain, node.op_type, opsets.get(node.domain, 1))
    floats = (each for each in given if each in (*DTYPES, TensorProto.FLOAT, TensorProto.DOUBLE))
    if schema is None:
        return [next(floats, 0)] * len(node.output)
    return [schema.result(index, given) for index in range(len(node.output))]


@dataclass(frozen=True)
class _Schema:
    """What types an operator takes: the variable of each input and output, and what each allows."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    allowed: Mapping[str, Collection[str]]

    def result(self, index: int, given: Sequence[int]) -> int:
        variable = self.outputs[min(index, len(self.outputs) - 1)]
        for place, kind in enumerate(given):
            if kind and self.of_input(place) == variable:
                return kind
        only = self.allowed.get(variable, (variable,))
        return _FLOAT if "tensor(float)" in only else _OTHER

    def of_input(self, index: int) -> str:
        return self.inputs[min(index, len(self.inputs) - 1)] if self.inputs else ""

    def moves(self) -> bool:
        """Return whether its results are of a type that may be text: nothing is computed of that."""
        return "tensor(string)" in self.allowed.get(self.outputs[0], ())

    def takes_float(self, index: int) -> bool:
        variable = self.of_input(index)
        return "tensor(float)" in self.allowed.get(variable, (variable,))


_FLOAT, _OTHER = int(TensorProto.FLOAT), int(TensorProto.INT64)


@functools.lru_cache(maxsize=4096)
def _schema(domain: str, op_type: str, version: int) -> _Schema | None:
    domain = "" if domain == "ai.onnx" else domain
    if domain:
        return _of_runtime().get((domain, op_type))
    try:
        found = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    return _Schema(
        [each.type_str for each in found.inputs],
        [each.type_str for each in found.outputs],
        {each.type_param_str: frozenset(each.allowed_type_strs) for each in found.type_constraints},
    )


@functools.lru_cache(maxsize=1)
def _of_runtime() -> Mapping[tuple[str, str], _Schema]:
    """Return what ONNX Runtime says of the operators that are its own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return {
        (each.domain, each.name): _Schema(
            [value.typeStr for value in each.inputs],
            [value.typeStr for value in each.outputs],
            {c.type_param_str: frozenset(c.allowed_type_strs) for c in each.type_constraints},
        )
        for each in state.get_all_operator_schema()
        if each.domain and each.outputs
    }


class _Rewriter:
    """Puts casts around the nodes of graphs."""

    def __init__(
        self, types: Mapping[str, int], opsets: Mapping[str, int], wide: Collection[str]
    ) -> None:
        self._types, self._opsets, self._wide = types, opsets, wide
        self._kept: set[str] = set()
        self._numbers = itertools.count()

    def graph(
        self, graph: GraphProto, outer: Mapping[str, str], *, top: bool = False
    ) -> list[Scalars]:
        """Rewrite a graph, and return what of it is measured there.

        ``outer`` are the values that float32 ones stand for around it.
        """
        up, nodes = dict(outer), list(graph.node)
        made: list[NodeProto] = []
        measured: list[Scalars] = []
        for node in nodes:
            inside = [(body, self.graph(body, up)) for body in bodies(node)]
            how = self._how(node)
            if how == "left":
                after, found = lifted(node, inside)
                made += [node, *after]
                measured += found
            elif how == "cast":
                made += self._cast(node, measured)
            else:
                made += self._computed(node, up, measured)
        if top:
            self._outputs(graph, made)
        del graph.node[:]
        graph.node.extend(made)
        if not top:
            del graph.value_info[:]
        return measured

    def _is_wide(self, node: NodeProto) -> bool:
        return (node.name or node.output[0]) in self._wide

    def _how(self, node: NodeProto) -> str:
        """Return what becomes of a node: ``left`` as it is, a ``cast`` to 16 bits, or ``computed``."""
        given = [self._types.get(name, 0) for name in node.input]
        made = [self._types.get(name, 0) for name in node.output]
        if node.op_type == "Cast":
            narrows = made[0] in DTYPES and given[0] in (TensorProto.FLOAT, TensorProto.DOUBLE)
            return "cast" if narrows else "left"
        short = {each for each in given if each in DTYPES}
        if not short or node.op_type.startswith(_LEFT):
            return "left"
        schema = _schema(node.domain, node.op_type, self._opsets.get(node.domain, 1))
        if schema is None:
            return "left"
        adds = any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute)
        if schema.moves() and not adds and not self._is_wide(node):
            return "left" if TensorProto.BFLOAT16 not in short else "computed"
        fits = all(schema.takes_float(i) for i, kind in enumerate(given) if kind in DTYPES)
        return "computed" if fits else "left"

    def _outputs(self, graph: GraphProto, made: list[NodeProto]) -> None:
        if OUTPUTS in self._wide:
            for value in graph.output:
                if self._types.get(value.name) in DTYPES:
                    read = self._read(value.name, {}, made, wide=True)
                    value.name = f"{value.name}__returned"
                    value.type.tensor_type.elem_type = TensorProto.FLOAT
                    made.append(helper.make_node("Identity", [read], [value.name]))

    def _read(self, name: str, up: dict[str, str], made: list[NodeProto], *, wide: bool) -> str:
        """Return what has a 16-bit value in float32, unrounded where that may be handed on."""
        if wide and name in self._kept:
            return f"{name}__wide"
        if name not in up:
            up[name] = f"{name}__up{next(self._numbers)}"
            made.append(helper.make_node("Cast", [name], [up[name]], to=TensorProto.FLOAT))
        return up[name]

    def _cast(self, node: NodeProto, measured: list[Scalars]) -> list[NodeProto]:
        """Return a cast to 16 bits with its input in float32, as which it is watched, or handed on."""
        name = f"{node.output[0]}__wide"
        if self._is_wide(node):
            self._kept.add(node.output[0])
        first = helper.make_node("Cast", [node.input[0]], [name], to=TensorProto.FLOAT)
        return [first, node, *self._watch(node, node.output[0], name, node.input[0], measured)]

    def _computed(
        self, node: NodeProto, up: dict[str, str], measured: list[Scalars]
    ) -> list[NodeProto]:
        made: list[NodeProto] = []
        wide = self._is_wide(node)
        inner = NodeProto()
        inner.CopyFrom(node)
        inner.input[:] = [
            self._read(name, up, made, wide=wide) if self._types.get(name) in DTYPES else name
            for name in node.input
        ]
        for attribute in inner.attribute:
            if attribute.name in TYPED and attribute.i in DTYPES:
                attribute.i = TensorProto.FLOAT
        made.append(inner)
        for index, name in enumerate(node.output):
            kind = self._types.get(name)
            if name and kind in DTYPES:
                inner.output[index] = f"{name}__wide"
                made.append(helper.make_node("Cast", [f"{name}__wide"], [name], to=kind))
                if wide:
                    self._kept.add(name)
                made += self._watch(node, name, f"{name}__wide", inner.input[0], measured)
        return made

    def _watch(
        self, node: NodeProto, name: str, wide: str, given: str, measured: list[Scalars]
    ) -> list[NodeProto]:
        watched = Watched(name, node, wide, self._types[name])
        nodes, found = measuring(watched, given, f"__range{next(self._numbers)}")
        measured.append(found)
        return nodes
