"""Faults drawn at random: any node of any network, changed in a way that its type allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.inspect import join_inputs
from onnx_gate.verify.subject import Subject

from . import graphs as g
from .case import DivergingCase, worst_output
from .cases import INPUTS

_FAMILIES = (
    ("Relu", "Tanh", "Sigmoid", "Softplus", "Abs", "Neg", "Exp", "Sqrt", "Reciprocal", "Erf"),
    ("Cos", "Sin"),
    ("Floor", "Ceil", "Round"),
    ("Add", "Sub", "Mul", "Div"),
    ("Less", "Greater", "LessOrEqual", "GreaterOrEqual"),
    ("And", "Or"),
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceMin"),
    ("Softmax", "LogSoftmax", "Hardmax"),
    ("ArgMax", "ArgMin"),
    ("MaxPool", "AveragePool"),
)
_FORMS = ("dynamo", "renamed", "torchscript", "traced", "names")
# Networks that the exporter of a form does not take, or not rightly.
_UNABLE = {
    "torchscript": ("Switch", "Mha", "TiedEncoder", "Buckets", "ItemScale"),
    "traced": ("Switch", "Mha", "TiedEncoder", "Buckets", "ItemScale"),
    "dynamo": ("Gain",),
    "renamed": ("Gain",),
    "names": ("Gain",),
}
_LEAST = 1e-4


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A subject whose wrong node is known by its outputs."""

    name: str
    what: str
    subject: Subject
    outputs: tuple[str, ...]


class Sweep:
    """Draws faults; each network is exported once for each form."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random = folder, np.random.default_rng(seed)
        self._exports: dict[tuple[str, str], tuple[DivergingCase, Subject]] = {}

    def draw(self) -> Drawn | None:
        """Return a fault that diverges, ``None`` where the one drawn does not or cannot be."""
        form = str(self._random.choice(_FORMS))
        model = str(self._random.choice([m for m in INPUTS if m not in _UNABLE.get(form, ())]))
        case, clean = self._clean(model, form)
        proto = onnx.load(str(clean.exported.path))
        nodes = [n for n in proto.graph.node if n.op_type != "Constant"]
        node = nodes[int(self._random.integers(len(nodes)))]
        choices = list(self._changes(proto, node))
        if not choices:
            return None
        what = choices[int(self._random.integers(len(choices)))]
        what_done = f"{node.op_type} {self._apply(proto, node, what)}"
        place = list(proto.graph.node).index(node)
        if form in ("renamed", "traced", "names"):
            g.strip(proto)
        if form in ("renamed", "traced"):
            g.rename(proto)
        path = clean.exported.path.with_name("faulty.onnx")
        onnx.save(proto, str(path))
        return self._subject(case, clean, path, proto.graph.node[place], what_done)

    def _subject(
        self, case: DivergingCase, clean: Subject, path: Path, node: onnx.NodeProto, what: str
    ) -> Drawn | None:
        try:
            onnx.checker.check_model(str(path))
            exported = dataclasses.replace(
                clean.exported, path=path, proto=onnx.load(str(path), load_external_data=False)
            )
            if case.form not in ("dynamo", "torchscript"):
                exported = Exported(path, "file", exported.proto)
            joined = join_inputs(clean.spec, exported)
            output = worst_output(clean.eager, exported, joined, dict(clean.arrays), _LEAST)
        except Exception:
            return None
        subject = dataclasses.replace(clean, exported=exported, graph_inputs=joined, output=output)
        name = f"{case.form}/{case.model}"
        return Drawn(name, what, subject, tuple(node.output))

    def _clean(self, model: str, form: str) -> tuple[DivergingCase, Subject]:
        exporter = "torchscript" if form in ("torchscript", "traced") else "dynamo"
        if (model, exporter) not in self._exports:
            case = DivergingCase(
                model, model, exporter, INPUTS[model], g.nothing, frozenset(), None, ""
            )
            folder = self._folder / f"{exporter}_{model}"
            self._exports[model, exporter] = (case, case.make(folder, check=False))
        case, subject = self._exports[model, exporter]
        return dataclasses.replace(case, form=form), subject

    def _changes(self, proto: onnx.ModelProto, node: onnx.NodeProto) -> Iterator[Any]:
        for family in _FAMILIES:
            if node.op_type in family:
                others = [op for op in family if op != node.op_type]
                yield "type", str(self._random.choice(others))
        if node.op_type in ("Sub", "Div", "Concat", "MatMul", "Where"):
            yield ("swap",)
        if len(node.output) == 1 and len(node.input) >= 1:
            yield ("drop",)
        if node.op_type == "Transpose":
            yield ("perm",)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:
                yield "float", attribute.name
            elif attribute.name in ("axis", "exclusive", "reverse", "largest", "keepdims"):
                yield "int", attribute.name
        for which, name in enumerate(node.input):
            try:
                array = g.value(proto, name)
            except KeyError:
                continue
            if array.dtype.kind == "f" and array.size:
                yield from (("scale", which), ("roll", which), ("element", which))
            elif array.dtype.kind == "i" and array.size:
                yield "plus", which

    def _apply(self, proto: onnx.ModelProto, node: onnx.NodeProto, what: Any) -> str:
        kind, *rest = what
        if kind == "type":
            node.op_type = rest[0]
            if rest[0] in ("MaxPool", "AveragePool"):
                kept = [a for a in node.attribute if a.name in ("kernel_shape", "pads", "strides")]
                del node.attribute[:]
                node.attribute.extend(kept)
        elif kind == "swap":
            a, b = (1, 2) if node.op_type == "Where" else (0, 1)
            node.input[a], node.input[b] = node.input[b], node.input[a]
        elif kind == "drop":
            node.op_type = "Identity"
            node.domain = ""
            del node.input[1:]
            del node.attribute[:]
        elif kind == "perm":
            attribute = next(a for a in node.attribute if a.name == "perm")
            perm = self._random.permutation(list(attribute.ints)).tolist()
            del attribute.ints[:]
            attribute.ints.extend(perm)
        elif kind in ("float", "int"):
            attribute = next(a for a in node.attribute if a.name == rest[0])
            if kind == "float":
                attribute.f = attribute.f * 1.5 + 1e-3
            else:
                attribute.i = 1 - attribute.i if attribute.i in (0, 1) else attribute.i - 1
        else:
            self._constant(proto, node, kind, rest[0])
        return " ".join(map(str, what))

    def _constant(
        self, proto: onnx.ModelProto, node: onnx.NodeProto, kind: str, which: int
    ) -> None:
        array = g.value(proto, node.input[which])
        if kind == "scale":
            array = (array * array.dtype.type(1.03)).astype(array.dtype)
        elif kind == "roll":
            array = np.roll(array, 1)
        elif kind == "element":
            array.flat[int(self._random.integers(array.size))] *= array.dtype.type(1.5)
        else:
            array = array + 1
        name = f"{node.input[which]}_faulty"
        proto.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        node.input[which] = name
