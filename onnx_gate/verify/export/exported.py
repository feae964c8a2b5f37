"""An ONNX file and what is known of how it came to be: names, sizes, conditions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import onnx
import sympy  # type: ignore[import-untyped]
import torch

from onnx_gate.files import sha256_of
from onnx_gate.graph.constants import external_files
from onnx_gate.graph.walk import opset_of
from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.dimensions import is_computed
from onnx_gate.report.model import ExportInfo
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.assumptions import Assumption, assumptions
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.source_lines import workspace_of

# A larger number is no size that a test could have.
LARGEST_SIZE = 2**16
# But two of them may come to it together, as the sides of an image to its area.
LARGEST_AREA = 2**24

TorchExporter = Literal["dynamo", "torchscript"]
_OF_TORCH: tuple[TorchExporter, ...] = get_args(TorchExporter)


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
    as the exporter knows. ``first`` is the export that this one was made in place of. ``numbers``
    are those that the traced program compares sizes with, cuts them at or divides them by.
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
    numbers: tuple[int, ...] = ()

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
        return opset_of(self.proto)

    @functools.cached_property
    def torch_exporter(self) -> TorchExporter | None:
        """Which of torch's exporters wrote the file, as far as it shows."""
        own = next((each for each in _OF_TORCH if each == self.exporter), None)
        return own if own is not None else torch_exporter_of(self.proto)

    @property
    def exporters(self) -> tuple[TorchExporter, ...]:
        """The exporters that a fresh export is tried with, the file's own first."""
        traced = self.torch_exporter == "torchscript"
        return ("torchscript", "dynamo") if traced else ("dynamo", "torchscript")

    def info(self) -> ExportInfo:
        """Return what the report says of the file."""
        operators: dict[str, int] = {}
        for node in self.proto.graph.node:
            operators[node.op_type] = operators.get(node.op_type, 0) + 1
        return ExportInfo(
            exporter=self.exporter,
            opset=self.opset,
            bytes=self.size,
            nodes=len(self.proto.graph.node),
            operators=dict(sorted(operators.items())),
            files={
                os.path.relpath(file, self.path.parent): sha256_of(file)
                for file in self._files()
                if file.exists()
            },
        )

    @property
    def size(self) -> int:
        """The size of the file and of the external data that it names."""
        return sum(file.stat().st_size for file in self._files() if file.exists())

    def _files(self) -> list[Path]:
        external = external_files(self.proto, self.path.parent) - {self.path}
        return [self.path, *sorted(external)]


def join_names(
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


def conditions_of(spec: ModelSpec, exported: Exported, stacks: Stacks) -> tuple[Assumption, ...]:
    """Return the conditions on sizes that torch.export relies on, as far as it says.

    ``stacks`` are those that asked for them.
    """
    if exported.program is None:
        return ()
    # What torch keeps of a trace is private to it, and a model has its verdict without.
    with contextlib.suppress(Exception):
        shapes, root = shapes_of(spec, exported), workspace_of(spec.model)
        return tuple(assumptions(exported.program.graph_module, shapes, stacks, root))
    return ()


def numbers_of(exported: Exported) -> tuple[int, ...]:
    """Return the numbers that sizes are compared with, cut at or divided by, as far as it is known."""
    numbers: set[int] = set()
    for low, high in exported.ranges.values():
        numbers |= {n for n in (low, high) if n is not None}
    for condition in exported.conditions:
        numbers |= condition.numbers()
    for node in exported.program.graph.nodes if exported.program is not None else ():
        value = node.meta.get("val")
        for size in list(value.shape) if isinstance(value, torch.Tensor) else [value]:
            if isinstance(size, (torch.SymInt, torch.SymBool)):
                numbers |= {abs(int(n)) for n in size.node.expr.atoms(sympy.Integer)}
    return tuple(sorted(n for n in numbers if 2 < n <= LARGEST_AREA))


def ranges_of(
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


def torch_exporter_of(proto: onnx.ModelProto) -> TorchExporter | None:
    """Return which of torch's exporters wrote a file, as far as it shows.

    The older one names nodes by their scopes, and leaves Constant nodes.
    """
    nodes = proto.graph.node
    notes = (proto.metadata_props, *(node.metadata_props for node in nodes))
    if any(entry.key.startswith("pkg.torch") for each in notes for entry in each):
        return "dynamo"
    scoped = any(node.name.startswith("/") for node in nodes[:1])
    older = scoped or any(node.op_type == "Constant" for node in nodes)
    return "torchscript" if proto.producer_name == "pytorch" and older else None
