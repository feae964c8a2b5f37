"""What can be seen in an ONNX graph without running it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.graph import RANDOM
from onnx_gate.graph.module_path import props_of
from onnx_gate.graph.walk import all_nodes, constants, trains
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import first_line
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inputs.draw import numpy_dtype
from onnx_gate.verify.inspect.assumed_sizes import inspect_sizes
from onnx_gate.verify.inspect.checker import check_file
from onnx_gate.verify.inspect.loads import inspect_loads
from onnx_gate.verify.inspect.lowering import deleted_constants, float64_inside, log_of_sigmoid
from onnx_gate.verify.inspect.opsets import changed_between, introduced_after
from onnx_gate.verify.source_lines import at, finding_at, of_node, workspace_of

_SMALL_BYTES = 1024
# Where the exporter notes what a node was made of: the modules around it, and the operator.
_SAYING_WHAT = ("class_hierarchy", "fx_node")


def inspect_graph(
    spec: ModelSpec, exported: Exported, reduced: Reduced | None = None
) -> list[Finding]:
    """Return what is wrong or remarkable in the graph, which computes in fewer bits if ``reduced``.

    Raises ``GateError`` of kind ``inspect`` where ``onnx.checker`` and the runtime reject the file.
    """
    return [*check_file(exported, spec), *inspect_proto(spec, exported, reduced)]


def inspect_proto(
    spec: ModelSpec, exported: Exported, reduced: Reduced | None = None
) -> list[Finding]:
    """Return what can be seen in the graph alone, wherever its weights are."""
    root = workspace_of(spec.model)
    return [
        *_shapes(exported.proto),
        *_opset(exported),
        *_inputs(spec, exported, reduced, root),
        *inspect_sizes(spec, exported, root),
        *_nodes(spec, exported.proto, root),
        *log_of_sigmoid(exported.proto, root),
        *_program(spec, exported, root),
        *inspect_loads(spec.targets, exported.proto, root),
    ]


def join_inputs(spec: ModelSpec, exported: Exported) -> dict[str, str]:
    """Map the manifest's inputs to the graph's: by what the exporter says, by name, by position.

    By position, in the order of ``forward``, only where the graph has as many inputs as the
    manifest and no name in common with it. Raises ``GateError`` of kind ``inspect`` where an input
    of the graph stays without values.
    """
    stored = {t.name for t in exported.proto.graph.initializer}
    wanted = [v.name for v in exported.proto.graph.input if v.name not in stored]
    joined = {name: g for name, g in exported.input_names.items() if g in wanted}
    joined |= {n: n for n in spec.inputs if n in wanted and n not in joined}
    if not joined and len(wanted) == len(spec.inputs):
        joined = dict(zip(exported.order or spec.inputs, wanted, strict=True))
    lacking = [name for name in wanted if name not in joined.values()]
    if lacking:
        free = [name for name in spec.inputs if name not in joined]
        near = difflib.get_close_matches(lacking[0], free, n=1, cutoff=0.4)
        hint = f" (is it {near[0]!r}?)" if near else ""
        raise codes.OG112.error(
            f"the graph has the input{'s' * (len(lacking) > 1)} {', '.join(lacking)}{hint}, which the "
            f"manifest does not name; it names {', '.join(spec.inputs) or 'none'}. Give both the same "
            "names (input_names of torch.onnx.export)"
        )
    return joined


def _shapes(proto: onnx.ModelProto) -> Iterator[Finding]:
    try:
        onnx.shape_inference.infer_shapes(_light(proto), check_type=True, strict_mode=True)
    except Exception as error:
        yield codes.OG120.finding(
            f"strict shape inference fails, so other runtimes may refuse the file: "
            f"{first_line(error)}"
        )


def _light(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the values of weights, which would be copied four times over.

    Shapes follow from values of small tensors only.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.HasField("raw_data") and len(tensor.raw_data) > _SMALL_BYTES:
            tensor.ClearField("raw_data")
    return copy


def _opset(exported: Exported) -> Iterator[Finding]:
    asked, written = exported.opset_asked, exported.opset
    if asked is None or written == asked:
        return
    operators = [node.op_type for node in exported.proto.graph.node]
    newer = introduced_after(operators, asked)
    changed = [name for name in sorted(set(operators)) if changed_between(name, asked, written)]
    if asked > written:
        why = "the exporter does not write that opset"
    elif newer:
        since = ", ".join(f"{name} exists from opset {first} on" for name, first in newer.items())
        why = f"{since}, and there is no way down"
    elif changed:
        why = f"it has no way down for what changed since: {', '.join(changed[:6])}"
    else:
        why = "its converter failed"
    yield codes.OG118.finding(
        f"opset {asked} was asked for and the file has opset {written}: {why}. Ask for "
        f"{written}, or leave the opset out"
    )


def _inputs(
    spec: ModelSpec, exported: Exported, reduced: Reduced | None, root: Path | None
) -> Iterator[Finding]:
    graph = {value.name: value for value in exported.proto.graph.input}
    joined = join_inputs(spec, exported)
    if len(joined) > 1 and not exported.input_names and not set(joined) & set(joined.values()):
        yield codes.OG112.finding(
            f"the graph calls its inputs {', '.join(joined.values())}, none of which the manifest "
            f"names: they were taken to be {', '.join(joined)}, by their order. Give both the same "
            "names (input_names of torch.onnx.export)"
        )
    for name, declared in spec.inputs.items():
        if name not in joined:
            yield codes.OG112.finding(
                f"the input {name!r} is not in the graph: the output does not depend on it, "
                "and a runtime will refuse to be fed it"
            )
            continue
        tensor = graph[joined[name]].type.tensor_type
        if declared.dtype == "float64":
            yield codes.OG103.finding(f"the input {name!r} is float64; many runtimes take none")
        kind = np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else None
        if kind is not None and reduced is not None and kind.name == reduced.dtype:
            yield codes.OG121.finding(
                f"the graph takes {kind.name} for {name!r}, as it computes in it: the values of "
                f"{declared.dtype} are rounded to it on the way in",
                severity="note",
            )
        elif kind is not None and kind != numpy_dtype(declared.dtype):
            yield codes.OG121.finding(
                f"the graph takes {kind.name} for {name!r}, the manifest says {declared.dtype}"
            )
        if not tensor.HasField("shape"):
            continue
        for axis, (size, dim) in enumerate(zip(tensor.shape.dim, declared.shape, strict=False)):
            if isinstance(dim, str) and size.HasField("dim_value"):
                yield codes.OG102.finding(
                    f"{dim!r} (axis {axis} of {name!r}) is declared dynamic and is the fixed "
                    f"size {size.dim_value} in the graph",
                    data={"dims": {dim: size.dim_value}, "writer": spec.writer},
                ).model_copy(update={"file": _script(spec, root)})


def _script(spec: ModelSpec, root: Path | None) -> str | None:
    """Return the owner's script that wrote the file, where it is one of the workspace."""
    file = spec.writer.partition(":")[0]
    known = root is not None and file != spec.onnx and bool(file)
    return file if known and root is not None and (root / file).is_file() else None


def _program(spec: ModelSpec, exported: Exported, root: Path | None) -> Iterator[Finding]:
    program = exported.program
    if program is not None:
        yield from deleted_constants(program, exported.proto, root)
        yield from float64_inside(program, {s.dtype for s in spec.inputs.values()}, root)


def _nodes(spec: ModelSpec, proto: onnx.ModelProto, root: Path | None) -> Iterator[Finding]:
    known = constants(proto)
    for node in all_nodes(proto):
        code, text = codes.OG113, ""
        alive = node.op_type == "Dropout" and _true(node, 2, known)
        if alive or (node.op_type in RANDOM and _of_dropout(node)):
            text = "Dropout is alive in the graph ({}): it was exported in training mode"
        elif node.op_type in RANDOM:
            code = codes.OG114
            text = (
                "the graph draws random numbers ({}): every run gives another result, and none of "
                "them can be verified. Draw outside the model and pass the numbers in"
            )
        elif node.op_type == "BatchNormalization" and trains(node):
            text = (
                "BatchNormalization uses the statistics of the batch ({}): it was exported in "
                "training mode"
            )
        if text:
            source = of_node(node, root)
            named = _named(node) + at(source)
            data = {"node": named} | ({"writer": spec.writer} if spec.writer else {})
            yield finding_at(code, text.format(named), source, data=data)


def _of_dropout(node: onnx.NodeProto) -> bool:
    """Return whether the exporter has taken a dropout apart, and the node draws for it."""
    notes = props_of(node)
    return any("dropout" in notes.get(f"pkg.torch.onnx.{key}", "") for key in _SAYING_WHAT)


def _true(node: onnx.NodeProto, index: int, known: Mapping[str, onnx.TensorProto]) -> bool:
    if len(node.input) <= index or node.input[index] not in known:
        return False
    return bool(np.all(numpy_helper.to_array(known[node.input[index]])))


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r}" if node.name else node.op_type
