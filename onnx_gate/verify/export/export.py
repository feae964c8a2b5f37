"""From a module to an ONNX file: the exporters, a user's own, or a file that is there already."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

from onnx_gate.findings import codes
from onnx_gate.manifest import COMMAND, InputSpec, ModelSpec
from onnx_gate.manifest.dimensions import is_computed
from onnx_gate.report.model import ExportInfo
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.outputs import bound_inputs, flat_outputs, name_in_file
from onnx_gate.runtimes.torch_eager import Eager, _fast_path, seed_everything, to_tensor
from onnx_gate.verify.build import load_function
from onnx_gate.verify.export.assumptions import Assumption, assumptions
from onnx_gate.verify.export.command import run_command
from onnx_gate.verify.export.disk import check_room
from onnx_gate.verify.export.errors import export_error
from onnx_gate.verify.export.scripts import as_script, converted, has_script, refused
from onnx_gate.verify.export.specialising import Stacks, specialising
from onnx_gate.verify.onnx_file import read_graph
from onnx_gate.verify.source_lines import workspace_of

# Above this the weights go beside the graph, which halves the memory that a session takes to load.
EXTERNAL_DATA_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Exported:
    """An ONNX file and how it came to be.

    ``input_names`` maps the manifest's inputs to the graph's, as far as the exporter knows, and
    ``order`` are the manifest's inputs in the order of ``forward``;
    ``ranges`` maps dynamic dimensions to the sizes for which the exporter vouches (both ends
    inclusive, ``None`` without end), ``conditions`` are further ones on sizes that it relies on.
    ``opset_asked`` is what the manifest asks for, ``example`` the sizes of the inputs that the
    model was exported with. ``program`` is torch.export's, decomposed as the graph was translated
    from it, ``None`` without one. ``outputs`` are the model's names for the graph's outputs, as far
    as the exporter knows. ``first`` is the export that this one was made in place of.
    """

    path: Path
    exporter: str
    proto: onnx.ModelProto
    opset_asked: int | None = None
    input_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int | None]] = dataclasses.field(default_factory=dict)
    program: torch.export.ExportedProgram | None = None
    conditions: tuple[Assumption, ...] = ()
    example: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first: Exported | None = None
    outputs: tuple[str, ...] | None = None
    order: tuple[str, ...] = ()

    @property
    def placeholders(self) -> dict[str, str]:
        """The placeholder of the program for each of the manifest's inputs that is in the graph."""
        users = self.program.graph_signature.user_inputs if self.program is not None else ()
        of_graph = dict(
            zip((v.name for v in self.proto.graph.input), map(str, users), strict=False)
        )
        return {n: of_graph[g] for n, g in self.input_names.items() if g in of_graph}

    @property
    def opset(self) -> int:
        """Return the version of ONNX's own operator set that the file imports."""
        return max(
            (o.version for o in self.proto.opset_import if o.domain in ("", "ai.onnx")), default=0
        )

    def info(self) -> ExportInfo:
        """Return what the report says of the file."""
        operators: dict[str, int] = {}
        for node in self.proto.graph.node:
            operators[node.op_type] = operators.get(node.op_type, 0) + 1
        return ExportInfo(
            exporter=self.exporter,
            opset=self.opset,
            bytes=_size(self.path, self.proto),
            nodes=len(self.proto.graph.node),
            operators=dict(sorted(operators.items())),
        )


def export(
    spec: ModelSpec,
    eager: Eager,
    example: Mapping[str, Array],
    workspace: Path,
    folder: Path,
) -> Exported:
    """Write (or find) the ONNX file of a model and read its graph, without the weights.

    ``example`` holds one array per input. Raises ``GateError`` of kind ``export`` with the
    exporter's essential lines.
    """
    exported = _export(spec, eager, example, workspace, folder)
    return dataclasses.replace(exported, order=eager.binding.order)


def _export(
    spec: ModelSpec, eager: Eager, example: Mapping[str, Array], workspace: Path, folder: Path
) -> Exported:
    exporter = spec.export.exporter
    if spec.onnx is not None:
        path = workspace / spec.onnx
        return Exported(path, "file", read_graph(path, spec.onnx))
    folder.mkdir(parents=True, exist_ok=True)
    check_room(folder, eager.module)
    if spec.export.command is not None:
        path = run_command(spec, workspace, folder)
        return Exported(path, COMMAND, read_graph(path, spec.export.file or path.name))
    path = folder / "model.onnx"
    seed_everything(spec.seed)
    tensors = {name: to_tensor(array) for name, array in example.items()}
    with torch.no_grad():
        if exporter == "dynamo":
            return _dynamo(spec, eager, tensors, path)
        if exporter == "torchscript":
            return _torchscript(spec, eager, tensors, path)
        return _custom(spec, eager, tensors, path, workspace)


def _dynamo(
    spec: ModelSpec, eager: Eager, tensors: dict[str, torch.Tensor], path: Path
) -> Exported:
    if isinstance(eager.module, torch.jit.ScriptModule):
        return _script_by_dynamo(spec, eager, tensors, path)
    args, kwargs = eager.binding.for_export(tensors)
    stacks: Stacks = {}
    try:
        with exportable(eager, tensors) as kept, specialising() as stacks:
            program = torch.onnx.export(
                eager.module,
                args,
                kwargs=kwargs,
                dynamo=True,
                verbose=False,
                opset_version=spec.export.opset,
                output_names=_output_names(spec, eager) if kept is None else None,
                dynamic_shapes=_dynamic_shapes(eager, spec.inputs),
                optimize=spec.export.optimize is not False,
            )
        assert program is not None
        outputs = _known_names(eager, kept)
        if eager.binding.nested:
            # No parameter can be called as they are.
            for value, name in zip(program.model.graph.inputs, eager.binding.order, strict=False):
                value.name = name
        if spec.outputs and outputs is not None:
            # Which of them are in the graph is known only now.
            inputs = {str(value.name) for value in program.model.graph.inputs}
            for value, name in zip(program.model.graph.outputs, outputs, strict=True):
                value.name = name_in_file(name, inputs)
        _save(program, spec, eager, path)
    except Exception as error:
        if has_script(eager.module):
            return _script_by_dynamo(spec, eager, tensors, path)
        raise export_error(error, spec, stacks) from error
    proto = read_graph(path, path.name)
    exported_program = program.exported_program
    user_inputs = list(exported_program.graph_signature.user_inputs) if exported_program else []
    graph_inputs = [value.name for value in proto.graph.input]
    names = _join_inputs(eager, user_inputs, graph_inputs)
    ranges = _ranges(exported_program, spec.inputs, names, graph_inputs) if exported_program else {}
    exported = Exported(path, "dynamo", proto, spec.export.opset, names, ranges, exported_program)
    conditions = _conditions(spec, exported)
    return dataclasses.replace(exported, conditions=conditions, outputs=outputs)


def _script_by_dynamo(
    spec: ModelSpec, eager: Eager, tensors: dict[str, torch.Tensor], path: Path
) -> Exported:
    """Export TorchScript by way of torch's converter, where that knows what is in it."""
    order = eager.binding.order
    axes = tuple(
        {axis: torch.export.Dim.DYNAMIC for axis, dim in enumerate(each) if isinstance(dim, str)}
        for each in (spec.inputs[name].shape for name in order)
    )
    outputs = tuple(name for name, _ in _traced_outputs(eager, tensors))
    try:
        module = converted(as_script(eager, tensors), eager, tensors)
        program = torch.onnx.export(
            module,
            tuple(tensors[name] for name in order),
            dynamo=True,
            verbose=False,
            opset_version=spec.export.opset,
            dynamic_shapes=axes if any(axes) else None,
            optimize=spec.export.optimize is not False,
        )
        assert program is not None
        for value, name in zip(program.model.graph.inputs, order, strict=True):
            value.name = name
        if len(program.model.graph.outputs) == len(outputs):
            for value, name in zip(program.model.graph.outputs, outputs, strict=True):
                value.name = f"output_{name}" if name.isdecimal() else name_in_file(name, order)
        _save(program, spec, eager, path)
    except Exception as error:
        raise codes.OG207.error(refused(error)) from error
    proto = read_graph(path, path.name)
    return Exported(path, "dynamo", proto, spec.export.opset, outputs=outputs)


def _save(program: torch.onnx.ONNXProgram, spec: ModelSpec, eager: Eager, path: Path) -> None:
    weights = sum(p.numel() * p.element_size() for p in state.parameters(eager.module))
    large = {"external_data": weights > EXTERNAL_DATA_BYTES}
    options: dict[str, Any] = {**large, **spec.export.options}
    program.save(str(path), **options)


def _torchscript(
    spec: ModelSpec, eager: Eager, tensors: dict[str, torch.Tensor], path: Path
) -> Exported:
    order = list(eager.binding.order)
    axes = {
        name: {axis: dim for axis, dim in enumerate(s.shape) if isinstance(dim, str)}
        for name, s in spec.inputs.items()
    }
    try:
        returned = _traced_outputs(eager, tensors)
    except Exception as error:
        raise export_error(error, spec) from error
    # A value of a trace cannot be called by a number, as the outputs in a tuple are.
    names = [f"output_{n}" if n.isdecimal() else name_in_file(n, order) for n, _ in returned]
    for name, (_, tensor) in zip(names, returned, strict=True):
        # Without this the exporter writes the example's sizes into the outputs' declared shapes.
        axes[name] = {axis: f"{name}_{axis}" for axis in range(tensor.ndim)}
    try:
        # The fused operators of attention's fast path have no translation.
        with traceable(eager), _fast_path(False):
            torch.onnx.export(
                as_script(eager, tensors) if has_script(eager.module) else eager.module,
                tuple(tensors[name] for name in order),
                str(path),
                dynamo=False,
                verbose=False,
                opset_version=spec.export.opset,
                input_names=order,
                output_names=list(names),
                dynamic_axes={name: value for name, value in axes.items() if value},
                **spec.export.options,
            )
    except Exception as error:
        raise export_error(error, spec) from error
    outputs = tuple(name for name, _ in returned)
    return Exported(
        path, "torchscript", read_graph(path, path.name), spec.export.opset, outputs=outputs
    )


def exportable(
    eager: Eager, tensors: Mapping[str, torch.Tensor]
) -> AbstractContextManager[list[str] | None]:
    """Let the module take and return what torch.export understands, where it does not already.

    Yields the names of the outputs that it returned when it was traced, ``None`` where it was let be.
    """
    if eager.returned is None:
        eager.run_prepared({name: tensor.clone() for name, tensor in tensors.items()})
    assert eager.returned is not None
    if not eager.binding.is_direct:
        return flat_outputs(eager.module, eager.binding)
    return nullcontext() if eager.returned.plain else flat_outputs(eager.module)


def traceable(eager: Eager) -> AbstractContextManager[list[str] | None]:
    """Let the module take and return tuples of tensors, which is all that tracing understands."""
    if isinstance(eager.module, torch.jit.ScriptModule):  # is translated as it is
        return nullcontext()
    return flat_outputs(eager.module, eager.binding)


def callable_with_tensors(eager: Eager) -> AbstractContextManager[object]:
    """Let the module be called with the example alone, where more than that makes up a call of it."""
    binding = eager.binding
    if binding.is_direct or isinstance(eager.module, torch.jit.ScriptModule):
        return nullcontext()
    return bound_inputs(eager.module, binding)


def _custom(
    spec: ModelSpec, eager: Eager, tensors: dict[str, torch.Tensor], path: Path, workspace: Path
) -> Exported:
    where = f"models.{spec.name}.export.exporter"
    function = load_function(spec.export.exporter, workspace, where)
    ordered = {name: tensors[name] for name in eager.binding.order}
    try:
        with callable_with_tensors(eager):
            function(eager.module, ordered, path)
    except Exception as error:
        raise export_error(error, spec) from error
    if not path.exists():
        raise codes.OG207.error(
            f"{where}: {spec.export.exporter} returned without writing {path.name}",
        )
    return Exported(path, spec.export.exporter, read_graph(path, path.name), spec.export.opset)


def _output_names(spec: ModelSpec, eager: Eager) -> list[str] | None:
    """Return the manifest's names in the order of the model's outputs, which may be another."""
    named = spec.outputs and eager.returned
    return [name_in_file(n, eager.binding.order) for n in named.names.values()] if named else None


def _dynamic_shapes(eager: Eager, inputs: Mapping[str, InputSpec]) -> dict[str, Any] | None:
    """Return torch.export's ``dynamic_shapes``: for each parameter of ``forward``, axis to name."""
    if not any(isinstance(d, str) for spec in inputs.values() for d in spec.shape):
        return None
    axes: dict[str, Any] = {
        name: {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for name, spec in inputs.items()
    }
    return by_parameter(eager, axes)


def by_parameter(eager: Eager, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what belongs to the inputs by the parameters of what is exported."""
    if not eager.binding.is_direct:
        return {parameter: values[name] for parameter, name in eager.binding.identifiers.items()}
    args, kwargs = eager.binding.split(values)
    return dict(inspect.signature(eager.module.forward).bind(*args, **kwargs).arguments)


def _known_names(eager: Eager, kept: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the manifest's names for the outputs called ``kept`` by the model."""
    if kept is None or eager.returned is None:
        return None
    return tuple(eager.returned.names.get(name, name) for name in kept)


def _traced_outputs(
    eager: Eager, tensors: Mapping[str, torch.Tensor]
) -> list[tuple[str, torch.Tensor]]:
    """Return the names and values, on the example, of the outputs that a trace has."""
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    returned = list(zip(*eager.run_prepared(copies), strict=True))
    if eager.returned is None or not eager.returned.numbers:
        return returned
    with traceable(eager) as kept, _fast_path(False):
        if kept is None:
            return returned
        # Only tracing tells the numbers that depend on a size from constants.
        order = tuple(tensors[name].clone() for name in eager.binding.order)
        torch.jit.trace(eager.module, order, check_trace=False, strict=False)
    known = _known_names(eager, kept) or ()
    return [(name, tensor) for name, tensor in returned if name in known]


def _join_inputs(
    eager: Eager, user_inputs: Sequence[str], graph_inputs: Sequence[str]
) -> dict[str, str]:
    """Match the manifest's inputs with the graph's, which the exporter may have renamed."""
    order = list(eager.binding.order)
    if len(user_inputs) == len(graph_inputs) == len(order):
        return dict(zip(order, graph_inputs, strict=True))
    return {
        name: graph for name in order for graph in graph_inputs if graph in (name, f"{name}_orig")
    }


def shapes_of(spec: ModelSpec, exported: Exported) -> dict[str, tuple[int | str, ...]]:
    """Return the declared shape of each placeholder of the program."""
    return {p: spec.inputs[name].shape for name, p in exported.placeholders.items()}


def _conditions(spec: ModelSpec, exported: Exported) -> tuple[Assumption, ...]:
    if exported.program is None:
        return ()
    # What torch keeps of a trace is private to it, and a model has its verdict without.
    with contextlib.suppress(Exception):
        shapes, root = shapes_of(spec, exported), workspace_of(spec.model)
        return tuple(assumptions(exported.program.graph_module, shapes, root))
    return ()


def _ranges(
    program: Any,
    inputs: Mapping[str, InputSpec],
    names: Mapping[str, str],
    graph_inputs: Sequence[str],
) -> dict[str, tuple[int, int | None]]:
    """Return the sizes that torch.export vouches for, by the manifest's names of dimensions."""
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    tensors = {n.name: n.meta.get("val") for n in placeholders}
    users = list(program.graph_signature.user_inputs)
    ranges: dict[str, tuple[int, int | None]] = {}
    for name, graph_name in names.items():
        index = graph_inputs.index(graph_name)
        value = tensors.get(users[index]) if index < len(users) else None
        if not isinstance(value, torch.Tensor):
            continue
        for size, dim in zip(value.shape, inputs[name].shape, strict=False):
            if isinstance(dim, str) and not is_computed(dim):
                low, high = _range_of(size, program.range_constraints)
                before = ranges.get(dim, (0, None))
                ends = [end for end in (before[1], high) if end is not None]
                ranges[dim] = (max(before[0], low), min(ends) if ends else None)
    return ranges


def _range_of(size: Any, constraints: Mapping[Any, Any]) -> tuple[int, int | None]:
    if isinstance(size, int):
        return size, size
    bounds = constraints.get(size.node.expr)
    if bounds is None:
        return 0, None
    low = int(bounds.lower) if bounds.lower.is_finite else 0
    high = int(bounds.upper) if bounds.upper.is_finite and bounds.upper < 2**31 else None
    return low, high


def _size(path: Path, proto: onnx.ModelProto) -> int:
    """Return the bytes of the file and of the external data that it names."""
    files = {path}
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                files.add(path.parent / entry.value)
    return sum(file.stat().st_size for file in files if file.exists())
