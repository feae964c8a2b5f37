"""What can be seen in an ONNX graph without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import Finding
from onnx_gate.runtimes.base import first_line
from onnx_gate.verify.draw import numpy_dtype
from onnx_gate.verify.export import Exported

_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)


def inspect_graph(spec: ModelSpec, exported: Exported) -> list[Finding]:
    """Return what is wrong or remarkable in the graph.

    Raises ``GateError`` of kind ``inspect`` where ``onnx.checker`` rejects the file.
    """
    _check(exported.path)
    return [
        *_shapes(exported.path, exported.proto),
        *_opset(exported),
        *_inputs(spec, exported),
        *_ranges(spec, exported),
        *_nodes(exported.proto),
    ]


def join_inputs(spec: ModelSpec, exported: Exported) -> dict[str, str]:
    """Map the manifest's inputs to the graph's: by what the exporter says, by name, by place.

    By place only where the graph has as many inputs as the manifest and no name in common with
    it. Raises ``GateError`` of kind ``inspect`` where an input of the graph stays without values.
    """
    stored = {t.name for t in exported.proto.graph.initializer}
    wanted = [v.name for v in exported.proto.graph.input if v.name not in stored]
    joined = {name: g for name, g in exported.input_names.items() if g in wanted}
    joined |= {n: n for n in spec.inputs if n in wanted and n not in joined}
    if not joined and len(wanted) == len(spec.inputs):
        joined = dict(zip(spec.inputs, wanted, strict=True))
    lacking = [name for name in wanted if name not in joined.values()]
    if lacking:
        raise GateError(
            "inspect",
            "OG112",
            f"the graph has the input{'s' * (len(lacking) > 1)} {', '.join(lacking)}, which the "
            f"manifest does not name; it names {', '.join(spec.inputs) or 'none'}",
        )
    return joined


def _check(path: Path) -> None:
    try:
        onnx.checker.check_model(str(path), full_check=False)
    except Exception as error:
        raise GateError(
            "inspect", "OG117", f"onnx.checker rejects the file: {first_line(error)}"
        ) from error


def _shapes(path: Path, proto: onnx.ModelProto) -> Iterator[Finding]:
    try:
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:
        yield Finding(
            code="OG120",
            severity="warning",
            message=f"strict shape inference fails, so other runtimes may refuse the file: "
            f"{first_line(error)}",
        )


def _opset(exported: Exported) -> Iterator[Finding]:
    if exported.opset_asked is not None and exported.opset != exported.opset_asked:
        yield Finding(
            code="OG118",
            severity="error",
            message=f"opset {exported.opset_asked} was asked for and the file has opset "
            f"{exported.opset}: the exporter could not convert it and said so in its log only",
        )


def _inputs(spec: ModelSpec, exported: Exported) -> Iterator[Finding]:
    graph = {value.name: value for value in exported.proto.graph.input}
    joined = join_inputs(spec, exported)
    for name, declared in spec.inputs.items():
        if name not in joined:
            yield Finding(
                code="OG112",
                severity="warning",
                message=f"the input {name!r} is not in the graph: the output does not depend on it, "
                "and a runtime will refuse to be fed it",
            )
            continue
        tensor = graph[joined[name]].type.tensor_type
        if declared.dtype == "float64":
            yield Finding(
                code="OG103",
                severity="warning",
                message=f"the input {name!r} is float64; many runtimes take none",
            )
        kind = np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else None
        if kind is not None and kind != numpy_dtype(declared.dtype):
            yield Finding(
                code="OG121",
                severity="error",
                message=f"the graph takes {kind.name} for {name!r}, the manifest says {declared.dtype}",
            )
        if not tensor.HasField("shape"):
            continue
        for axis, (size, dim) in enumerate(zip(tensor.shape.dim, declared.shape, strict=False)):
            if isinstance(dim, str) and size.HasField("dim_value"):
                yield Finding(
                    code="OG102",
                    severity="error",
                    message=f"{dim!r} (axis {axis} of {name!r}) is declared dynamic and is the fixed "
                    f"size {size.dim_value} in the graph",
                )


def _ranges(spec: ModelSpec, exported: Exported) -> Iterator[Finding]:
    for dim, (low, high) in exported.ranges.items():
        outside = [s for s in spec.dims.get(dim, ()) if s < low or (high is not None and s > high)]
        if low == high:
            text = f"only the size {low}"
        elif high is not None:
            text = f"only sizes from {low} to {high}"
        elif outside:
            text = f"only sizes of at least {low}"
        else:
            continue
        if low in (1, 2) and high is None and set(outside) <= {0, 1}:
            # torch.export never vouches for 0 and 1; whether they work is seen by running them.
            continue
        yield Finding(
            code="OG116",
            severity="warning",
            message=f"torch.export vouches for {text} of the dynamic dimension {dim!r}: forward has a "
            "condition on it, and the graph has no trace of the other branch"
            + (f"; tested outside it: {', '.join(map(str, outside))}" if outside else ""),
        )


def _nodes(proto: onnx.ModelProto) -> Iterator[Finding]:
    constants = _constants(proto)
    for node in _all_nodes(proto):
        if node.op_type in _RANDOM:
            yield Finding(
                code="OG114",
                severity="error",
                message=f"the graph draws random numbers ({_named(node)}): every run gives another "
                "result, and none of them can be verified",
            )
        elif node.op_type == "Dropout" and _true(node, 2, constants):
            yield Finding(
                code="OG113",
                severity="error",
                message=f"Dropout is alive in the graph ({_named(node)}): it was exported in "
                "training mode",
            )
        elif node.op_type == "BatchNormalization" and any(
            a.name == "training_mode" and a.i for a in node.attribute
        ):
            yield Finding(
                code="OG113",
                severity="error",
                message=f"BatchNormalization uses the statistics of the batch ({_named(node)}): it "
                "was exported in training mode",
            )


def _all_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    pending = [*proto.graph.node, *(node for f in proto.functions for node in f.node)]
    while pending:
        node = pending.pop(0)
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                pending.extend(graph.node)


def _constants(proto: onnx.ModelProto) -> Mapping[str, onnx.TensorProto]:
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in _all_nodes(proto):
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    found[node.output[0]] = attribute.t
    return found


def _true(node: onnx.NodeProto, place: int, constants: Mapping[str, onnx.TensorProto]) -> bool:
    if len(node.input) <= place or node.input[place] not in constants:
        return False
    return bool(np.all(numpy_helper.to_array(constants[node.input[place]])))


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r}" if node.name else node.op_type
