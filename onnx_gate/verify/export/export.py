"""From a module to an ONNX file: the exporters, a user's own, or a file that is there already."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import COMMAND, InputSpec, ModelSpec
from onnx_gate.manifest.nesting import name_in_file
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.outputs import bound_inputs, flat_outputs
from onnx_gate.runtimes.torch_eager import Eager, fast_path, seed_everything, to_tensor
from onnx_gate.verify.build import load_function
from onnx_gate.verify.export.disk import check_room
from onnx_gate.verify.export.exported import (
    Exported,
    conditions_of,
    join_names,
    numbers_of,
    ranges_of,
)
from onnx_gate.verify.export.failures import export_error
from onnx_gate.verify.export.gradients import explained
from onnx_gate.verify.export.owner_command import run_command
from onnx_gate.verify.export.scripts import as_script, converted, has_script, refused
from onnx_gate.verify.export.specialising import Stacks, specialising
from onnx_gate.verify.onnx_file import read_model

Save = Callable[[torch.onnx.ONNXProgram, ModelSpec, Eager, Path], None]

# Above this the weights go beside the graph, which halves the memory that a session takes to load.
EXTERNAL_DATA_BYTES = 256 * 2**20


def export(
    spec: ModelSpec, eager: Eager, example: Mapping[str, Array], workspace: Path, folder: Path
) -> Exported:
    """Write (or find) the ONNX file of a model and read its graph, without the weights.

    ``example`` holds one array per input. Raises ``GateError`` of kind ``export`` with the
    exporter's essential lines.
    """
    try:
        exported = _export(spec, eager, example, workspace, folder)
    except GateError as error:
        told = explained(error, eager, example, workspace.resolve())
        if told is error:
            raise
        raise told from error
    return dataclasses.replace(exported, order=eager.binding.order)


def _export(
    spec: ModelSpec, eager: Eager, example: Mapping[str, Array], workspace: Path, folder: Path
) -> Exported:
    exporter = spec.export.exporter
    if spec.onnx is not None:
        path = workspace / spec.onnx
        return Exported(path, "file", read_model(path, spec.onnx))
    folder.mkdir(parents=True, exist_ok=True)
    check_room(folder, eager.module)
    if spec.export.command is not None:
        path = run_command(spec, workspace, folder)
        return Exported(path, COMMAND, read_model(path, spec.export.file or path.name))
    # Now at the latest: where a run has one model, a fork asks it meanwhile.
    importlib.import_module("onnx_gate.verify.export.warm")
    path = folder / "model.onnx"
    seed_everything(spec.seed)
    tensors = {name: to_tensor(array) for name, array in example.items()}
    # Where gradients are on, as where the owner exports, attention takes no fast path: its fused
    # operators have no translation.
    with torch.no_grad(), fast_path(False), _warnings_that_warn():
        if exporter == "dynamo":
            return by_dynamo(spec, eager, tensors, path)
        if exporter == "torchscript":
            return _torchscript(spec, eager, tensors, path)
        return _custom(spec, eager, tensors, path, workspace)


@contextmanager
def _warnings_that_warn() -> Iterator[None]:
    """Make no error of a warning, as a model's code may have asked: exporters use what is deprecated."""
    with warnings.catch_warnings():
        filters: Any = warnings.filters
        kept = [("default" if action == "error" else action, *rest) for action, *rest in filters]
        warnings.resetwarnings()
        filters.extend(kept)
        yield


def by_dynamo(
    spec: ModelSpec,
    eager: Eager,
    tensors: dict[str, torch.Tensor],
    path: Path,
    translations: Mapping[Any, Any] | None = None,
    save: Save | None = None,
) -> Exported:
    """Export by way of torch.export, with translations of further operators; ``save`` writes the file.

    Raises ``GateError`` of kind ``export``.
    """
    if isinstance(eager.module, torch.jit.ScriptModule):
        return _script_by_dynamo(spec, eager, tensors, path)
    args, kwargs = eager.binding.for_export(tensors)
    stacks = Stacks()
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
                custom_translation_table=dict(translations or {}),
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
        (save or _save)(program, spec, eager, path)
    except Exception as error:
        if has_script(eager.module):
            return _script_by_dynamo(spec, eager, tensors, path)
        raise export_error(error, spec, stacks) from error
    proto = read_model(path, path.name, beside=save is None)
    exported_program = program.exported_program
    user_inputs = list(exported_program.graph_signature.user_inputs) if exported_program else []
    graph_inputs = [value.name for value in proto.graph.input]
    names = join_names(eager, user_inputs, graph_inputs)
    ranges = (
        ranges_of(exported_program, spec.inputs, names, graph_inputs) if exported_program else {}
    )
    exported = Exported(path, "dynamo", proto, spec.export.opset, names, ranges, exported_program)
    conditions = conditions_of(spec, exported, stacks)
    exported = dataclasses.replace(exported, conditions=conditions, outputs=outputs)
    return dataclasses.replace(exported, numbers=numbers_of(exported))


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
    proto = read_model(path, path.name)
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
        with traceable(eager):
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
        path, "torchscript", read_model(path, path.name), spec.export.opset, outputs=outputs
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


def callable_with_tensors(eager: Eager) -> torch.nn.Module:
    """Return what can be called with the example alone, where more makes up a call of the module."""
    binding = eager.binding
    if binding.is_direct or isinstance(eager.module, torch.jit.ScriptModule):
        return eager.module
    return bound_inputs(eager.module, binding)


def _custom(
    spec: ModelSpec, eager: Eager, tensors: dict[str, torch.Tensor], path: Path, workspace: Path
) -> Exported:
    where = f"models.{spec.name}.export.exporter"
    function = load_function(spec.export.exporter, workspace, where)
    ordered = {name: tensors[name] for name in eager.binding.order}
    try:
        function(callable_with_tensors(eager), ordered, path)
    except Exception as error:
        raise export_error(error, spec) from error
    if not path.exists():
        raise codes.OG207.error(
            f"{where}: {spec.export.exporter} returned without writing {path.name}"
        )
    return Exported(path, spec.export.exporter, read_model(path, path.name), spec.export.opset)


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
    with traceable(eager) as kept:
        if kept is None:
            return returned
        # Only tracing tells the numbers that depend on a size from constants.
        order = tuple(tensors[name].clone() for name in eager.binding.order)
        torch.jit.trace(eager.module, order, check_trace=False, strict=False)
    known = _known_names(eager, kept) or ()
    return [(name, tensor) for name, tensor in returned if name in known]
