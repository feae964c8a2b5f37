"""What a file declares of itself, for engines that do not say it, or say less."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, ValueInfo
from onnx_gate.text import listed

_ONNX = ("", "ai.onnx")
_SHOWN = 5


def declared(graph: onnx.GraphProto) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """Return the inputs, those with a stored value left out, and the outputs of a graph."""
    stored = {tensor.name for tensor in graph.initializer}
    inputs = tuple(value_info(v) for v in graph.input if v.name not in stored)
    return inputs, tuple(value_info(v) for v in graph.output)


def read_graph(model: Path) -> onnx.GraphProto:
    """Return a file's graph without weights that are stored beside it."""
    return onnx.load(str(model), load_external_data=False).graph


def value_info(value: onnx.ValueInfoProto) -> ValueInfo:
    """Return an input or output as it is declared."""
    tensor = value.type.tensor_type
    shape = tuple(
        d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim
    )
    kind = tensor.elem_type
    if kind == onnx.TensorProto.STRING:
        return ValueInfo(value.name, "str", shape)
    return ValueInfo(value.name, np.dtype(tensor_dtype_to_np_dtype(kind)).name, shape)


def check_feeds(inputs: Collection[ValueInfo], feeds: Mapping[str, Array]) -> None:
    """Raise ``Refusal`` where feeds are not what is declared: some engines run on with stale values.

    A name of a size stands for one size.
    """
    sizes: dict[str, int] = {}
    for value in inputs:
        array = feeds.get(value.name)
        if array is None:
            raise Refusal(f"the input {value.name} is missing")
        if array.dtype.name != value.dtype:
            raise Refusal(
                f"{value.name} is {array.dtype.name}, where the graph takes {value.dtype}"
            )
        if array.ndim != len(value.shape):
            raise Refusal(
                f"{value.name} has {array.ndim} axes, where the graph takes {len(value.shape)}"
            )
        for axis, (size, expected) in enumerate(zip(array.shape, value.shape, strict=True)):
            known = sizes.setdefault(expected, size) if isinstance(expected, str) else expected
            if known is not None and size != known:
                raise Refusal(
                    f"the size of {value.name} is {size} on axis {axis}, where the graph is made for "
                    f"{known} only",
                    {"input": value.name, "axis": axis, "expected": known},
                )


def refuse_empty(feeds: Mapping[str, Array], engine: str) -> None:
    """Raise ``Refusal`` where an input is empty, for an engine that has no such arrays."""
    for name, array in feeds.items():
        if not array.size:
            raise Refusal(f"the input {name} is empty, which {engine} does not take")


def handed_over_otherwise(
    engine: str, values: Collection[ValueInfo], dtypes: Mapping[str, Any]
) -> list[Finding]:
    """Return the note (OG309) of an engine of 32-bit numbers on the values that are of other ones.

    ``dtypes`` are those that it computes with, by the names of those in the file.
    """
    other = [value for value in values if np.dtype(dtypes[value.dtype]).name != value.dtype]
    if not other:
        return []
    names = ", ".join(f"{value.name} ({value.dtype})" for value in other)
    return [
        codes.OG309.finding(
            f"{engine} has 32-bit numbers only: {names} handed over as such, and turned back",
            data={"converted": [value.name for value in other]},
        )
    ]


def lacking(spec: RuntimeSpec, model: Path, operators: Collection[str]) -> GateError | None:
    """Return the error (OG202) of an engine that lacks operators; ``None`` where it lacks none.

    ``operators`` are types as the engine has them: a domain before the last dot or colon, and a
    version after a dash, are not looked at. One that no node has is the engine's own word.
    """
    if not operators:
        return None
    proto = onnx.load(str(model), load_external_data=False)
    types = sorted({_op_type(name, proto.graph) for name in operators})
    nodes = {each: [n for n in proto.graph.node if n.op_type == each] for each in types}
    opset = next((each.version for each in proto.opset_import if each.domain in _ONNX), 0)
    shown = "; ".join(_described(each, nodes[each]) for each in types[:_SHOWN])
    more = f" and {len(types) - _SHOWN} more" if len(types) > _SHOWN else ""
    if any(node.domain not in _ONNX for each in nodes.values() for node in each):
        change = (
            "Define operators of a domain of your own as functions of the model, or write them "
        )
        change += "with ONNX's own"
    else:
        change = (
            f"The file has opset {opset}: another (export: {{opset: N}}) may do without them; else "
        )
        change += "compute the same in the module with operators that it has"
    return codes.OG202.error(
        f"{spec.label}: it does not have these operators: {shown}{more}. Nothing was run. {change}"
    )


def _op_type(name: str, graph: onnx.GraphProto) -> str:
    bare = re.split(r"[.:]", name)[-1].partition("-")[0]
    return bare if any(node.op_type == bare for node in graph.node) else name


def _described(op_type: str, nodes: list[onnx.NodeProto]) -> str:
    if not nodes:
        return op_type
    names = (repr(node.name or node.output[0]) for node in nodes)
    return f"{op_type} (node {listed(names, 1)})"
