"""A module without values exported as a graph whose weights lie in the checkpoint, with its borders."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx import helper
from onnxscript import opset18 as op
from torch._subclasses.fake_tensor import FakeTensor

from onnx_gate.findings import codes
from onnx_gate.graph.module_path import props_of
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager, seed_everything, to_tensor
from onnx_gate.verify.blocks.divided import BlockCall, Divided, call_names, is_table
from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.blocks.staged import Call, Place, Staged, Unfit
from onnx_gate.verify.export.export import by_dynamo

_MARK = re.compile(r"onnx_gate\.border\.default\]\(args = \(%\w+, (\d+)\)")
_FX_NODE = "pkg.torch.onnx.fx_node"
# What a stored weight is called that is converted before it is read.
_STORED = ".stored"


@torch.library.custom_op("onnx_gate::border", mutates_args=())
def _border(value: torch.Tensor, mark: int) -> torch.Tensor:
    """Stand in a graph where a tensor enters or leaves a block."""
    return value.clone()


@_border.register_fake
def _(value: torch.Tensor, mark: int) -> torch.Tensor:
    return torch.empty_like(value)


def _identity(value: Any, mark: int) -> Any:
    return op.Identity(value)


def export_divided(
    spec: ModelSpec,
    skeleton: Skeleton,
    staged: Staged,
    eager: Eager,
    example: Mapping[str, Array],
    outside: frozenset[str],
    folder: Path,
) -> Divided:
    """Export a module without reading a weight, and without optimisations of the graph.

    Raises ``GateError`` of kind ``export``, and OG434 where blocks exchange more than tensors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seed_everything(spec.seed)
    spec = replace(spec, export=replace(spec.export, optimize=False))
    tensors = {name: to_tensor(array) for name, array in example.items()}
    marks = _Marks()
    unfit: list[Unfit] = []
    parameters: dict[str, str] = {}

    def marked(call: Call) -> Any:
        try:
            return marks.made(call)
        except Unfit as reason:
            unfit.append(reason)
            raise ValueError(str(reason)) from reason

    def save(program: torch.onnx.ONNXProgram, _: ModelSpec, __: Eager, path: Path) -> None:
        widened = {}
        for name, value in program.model.graph.initializers.items():
            raw = getattr(value.const_value, "raw", None)
            if isinstance(raw, FakeTensor):
                weight = skeleton.parameters[name]
                value.const_value = weight.stored.external(name, skeleton.weights.folder)
                parameters[name] = name
                if weight.stored.dtype != weight.dtype:
                    widened[name] = raw.dtype
        proto = ir.serde.serialize_model(program.model)
        _drop_unmoving(proto)
        parameters.update(_converted(proto, widened))
        onnx.save_model(proto, str(path))

    importlib.import_module("onnx_gate.verify.export.warm")
    translations = {torch.ops.onnx_gate.border.default: _identity}
    # Another attempt of the exporter's begins anew.
    hook = skeleton.module.register_forward_pre_hook(lambda *_: marks.clear())
    try:
        with torch.no_grad(), skeleton.faked(), staged.handled(marked):
            exported = by_dynamo(
                spec, eager, tensors, folder / "model.onnx", translations=translations, save=save
            )
    except Exception:
        if unfit:
            raise codes.OG434.error(str(unfit[0])) from unfit[0]
        raise
    finally:
        hook.remove()
    exported = replace(exported, order=eager.binding.order)
    calls = marks.calls(exported.proto)
    return Divided(exported, calls, parameters, outside, skeleton.weights.folder)


class _Marks:
    """The borders of blocks in a program that is being traced, and afterwards in its graph.

    What objects hold is marked as blocks leave it: what is in them from the beginning, the graph has as it
    is, and what a block has put there is marked when another is given it.
    """

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._places: list[tuple[int, bool, Place]] = []

    def clear(self) -> None:
        """Begin anew."""
        self._paths.clear()
        self._places.clear()

    def made(self, call: Call) -> Any:
        """Make a call with its tensors marked, and return what it does, marked as well."""
        number = len(self._paths)
        self._paths.append(call.path)
        at = call.given.at
        given: Mapping[Place, torch.Tensor] = {p: t for p, t in at.items() if isinstance(p, int)}
        _, said = call.made(self._marked(number, True, given))
        return call.answered(said, self._marked(number, False, said.at))

    def _marked(
        self, number: int, enters: bool, at: Mapping[Place, torch.Tensor]
    ) -> dict[Place, torch.Tensor]:
        marked = {}
        for place, tensor in at.items():
            marked[place] = torch.ops.onnx_gate.border.default(tensor, len(self._places))
            self._places.append((number, enters, place))
        return marked

    def calls(self, proto: onnx.ModelProto) -> tuple[BlockCall, ...]:
        """Return the calls, with the graph's values at their borders."""
        values: dict[int, str] = {}
        for node in proto.graph.node:
            mark = _MARK.search(props_of(node).get(_FX_NODE, ""))
            if mark is not None and node.op_type == "Identity":
                values[int(mark[1])] = node.output[0]
        inputs: list[dict[Place, str]] = [{} for _ in self._paths]
        outputs: list[dict[Place, str]] = [{} for _ in self._paths]
        for mark_number, value in sorted(values.items()):
            number, enters, place = self._places[mark_number]
            (inputs if enters else outputs)[number][place] = value
        named = zip(self._paths, call_names(self._paths), inputs, outputs, strict=True)
        return tuple(BlockCall(*each) for each in named)


def _drop_unmoving(proto: onnx.ModelProto) -> None:
    """Leave out transpositions of weights that move no axis, as the exporter writes before rows are taken.

    A runtime makes a copy of the weight for one.
    """
    weights = {tensor.name for tensor in proto.graph.initializer}
    same: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type == "Transpose" and node.input[0] in weights:
            axes = next((list(a.ints) for a in node.attribute if a.name == "perm"), [1, 0])
            if axes == sorted(axes) and not any(v.name in node.output for v in proto.graph.output):
                same[node.output[0]] = node.input[0]
    if not same or _has_bodies(proto):
        return
    nodes = [node for node in proto.graph.node if node.output[0] not in same]
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = same.get(name, name)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _has_bodies(proto: onnx.ModelProto) -> bool:
    return any(a.HasField("g") or a.graphs for n in proto.graph.node for a in n.attribute)


def _converted(proto: onnx.ModelProto, dtypes: Mapping[str, torch.dtype]) -> dict[str, str]:
    """Read stored weights in the module's dtypes; return parameters by the stored ones' new names.

    Of what is a table to all its readers the rows that are read are converted.
    """
    types = {
        name: int(ir.tensor_adapters.from_torch_dtype(dtype)) for name, dtype in dtypes.items()
    }
    read = {name: [n for n in proto.graph.node if name in n.input] for name in types}
    bodies = _has_bodies(proto)
    tables = {name for name, nodes in read.items() if not bodies and is_table(name, nodes)}
    for tensor in proto.graph.initializer:
        if tensor.name in types:
            tensor.name += _STORED
    whole = types.keys() - tables
    nodes = [_cast(name + _STORED, name, types[name]) for name in types if name in whole]
    for node in proto.graph.node:
        nodes.append(node)
        if node.input and node.input[0] in tables:
            name, row = node.input[0], node.output[0]
            node.input[0], node.output[0] = name + _STORED, row + _STORED
            nodes.append(_cast(row + _STORED, row, types[name]))
            nodes[-1].metadata_props.extend(node.metadata_props)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return {name + _STORED: name for name in types}


def _cast(stored: str, name: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [stored], [name], stored, to=kind)
