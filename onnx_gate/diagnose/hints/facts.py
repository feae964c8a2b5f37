"""What hints look at: the guilty node in its graph, and the element that is worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_gate.findings.codes import Code
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.walk import all_nodes, attribute, constants, opset_of
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.runtimes.base import Array

# Larger constants say nothing that fits a sentence.
_FEW = 16
# What makes as many as values say.
_BY_VALUES = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))


class DivergenceFacts:
    """A diverged check, its diagnosis and its graph, with the questions that rules ask.

    ``never_runs``: the runtime refuses every case, the export's own sizes too. ``said`` are findings of
    the model that are known.
    """

    def __init__(
        self,
        diagnosis: Diagnosis,
        proto: onnx.ModelProto,
        check: Check,
        *,
        never_runs: bool = False,
        said: Sequence[Finding] = (),
    ) -> None:
        self.diagnosis, self.proto, self.check = diagnosis, proto, check
        self.never_runs, self._said = never_runs, said

    def said(self, code: Code) -> Finding | None:
        """Return the finding that says this of the guilty line, or of a value that its node makes."""
        source = self.diagnosis.source
        place = None if source is None else (source.file, source.line)
        made = set(self.node.output)
        return next(
            (
                each
                for each in self._said
                if each.code == code.code
                and (
                    (each.file, each.line) == place
                    or not made.isdisjoint(each.data.get("values", ()))
                )
            ),
            None,
        )

    @cached_property
    def node(self) -> onnx.NodeProto:
        """The guilty node; one without a type where the diagnosis names none."""
        named = self.diagnosis.node
        if named is None:
            return onnx.NodeProto()
        node = self.find(named.name, named.op_type, named.output)
        return node if node is not None else onnx.NodeProto(op_type=named.op_type)

    @cached_property
    def maker(self) -> onnx.NodeProto:
        """The node that makes the output; one without a type where none is known to."""
        names = [value.name for value in self.proto.graph.output]
        output = self.check.output
        if output in names or len(names) == 1:
            wanted = output if output in names else names[0]
            makers: list[onnx.NodeProto] = list(self.proto.graph.node)
            return next((n for n in makers if wanted in n.output), onnx.NodeProto())
        return onnx.NodeProto()

    @property
    def op(self) -> str:
        """The guilty node's operator, empty where there is none."""
        return str(self.node.op_type)

    @property
    def expected(self) -> float:
        """PyTorch's value of the worst element, NaN where nothing was compared."""
        return self.check.worst.expected if self.check.worst is not None else math.nan

    @property
    def actual(self) -> float:
        """The candidate's value of the worst element."""
        return self.check.worst.actual if self.check.worst is not None else math.nan

    @property
    def one_nan(self) -> bool:
        """Whether exactly one side of the worst element is NaN."""
        return self.check.worst is not None and math.isnan(self.expected) != math.isnan(self.actual)

    @property
    def one_finite(self) -> bool:
        """Whether exactly one side of the worst element is a number."""
        return self.check.worst is not None and self.check.worst.one_finite

    def find(self, name: str, op_type: str, output: str) -> onnx.NodeProto | None:
        """Return a node by the value that it makes, else by its name."""
        by_name = None
        for node in all_nodes(self.proto):
            if node.op_type == op_type:
                if output and output in node.output:
                    return node
                if name and node.name == name and by_name is None:
                    by_name = node
        return by_name

    def attribute(self, name: str, default: object = None) -> object:
        """Return an attribute of the guilty node, text decoded."""
        value: object = attribute(self.node, name, default)
        return value

    def attributes(self, *names: str) -> str:
        """Return those of the named attributes that the node has: ``axis=1, epsilon=1e-05``."""
        shown = []
        for name in names:
            value = self.attribute(name)
            if value is not None:
                shown.append(
                    f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
                )
        return ", ".join(shown)

    def made_by(self, index: int, node: onnx.NodeProto | None = None) -> str:
        """Return the operator that makes an input of a node, which is the guilty one if none is given."""
        node = node or self.node
        name = node.input[index] if index < len(node.input) else ""
        return next(
            (str(n.op_type) for n in all_nodes(self.proto) if name and name in n.output), ""
        )

    def read_by(self) -> set[str]:
        """Return the operators that read what the guilty node makes."""
        made = set(self.node.output)
        return {str(node.op_type) for node in all_nodes(self.proto) if made & set(node.input)}

    def dtype(self, index: int = 0) -> str:
        """Return the NumPy name of an input's dtype, empty where the file does not declare it."""
        name = self.node.input[index] if index < len(self.node.input) else ""
        kind = self._kinds.get(name, 0)
        return np.dtype(tensor_dtype_to_np_dtype(kind)).name if kind else ""

    @cached_property
    def chooser(self) -> onnx.NodeProto | None:
        """The node next before the output whose result has as many elements as values say."""
        made = {name: node for node in self.proto.graph.node for name in node.output}
        before, seen = [self.maker], set[str]()
        for node in before:
            if node.op_type in _BY_VALUES:
                return node
            fresh = [name for name in node.input if name in made and name not in seen]
            seen.update(fresh)
            before += [made[name] for name in fresh]
        return None

    def constant(self, index: int, node: onnx.NodeProto | None = None) -> Array | None:
        """Return an input of a node, the guilty one if none is given, that is a small constant."""
        node = node or self.node
        name = node.input[index] if index < len(node.input) else ""
        tensor = self._constants.get(name)
        if tensor is None or tensor.external_data or math.prod(tensor.dims) > _FEW:
            return None
        array: Array = numpy_helper.to_array(tensor)
        return array

    def has_constant(self, value: float) -> bool:
        """Return whether a scalar of the graph is this number, to four digits."""
        for tensor in self._constants.values():
            if not tensor.external_data and math.prod(tensor.dims) == 1:
                array = numpy_helper.to_array(tensor).reshape(-1)
                if array.dtype.kind == "f" and math.isclose(float(array[0]), value, rel_tol=1e-4):
                    return True
        return False

    def uses(self, kind: int) -> bool:
        """Return whether a value of the graph has this ONNX element type."""
        return kind in self._kinds.values() or any(
            a.name == "to" and a.i == kind
            for node in all_nodes(self.proto)
            if node.op_type == "Cast"
            for a in node.attribute
        )

    @cached_property
    def opset(self) -> int:
        """The version of ONNX's own operators that the file imports."""
        return opset_of(self.proto)

    @cached_property
    def _kinds(self) -> Mapping[str, int]:
        graph = self.proto.graph
        values = (*graph.input, *graph.output, *graph.value_info)
        kinds = {value.name: int(value.type.tensor_type.elem_type) for value in values}
        return kinds | {name: int(t.data_type) for name, t in self._constants.items()}

    @cached_property
    def _constants(self) -> Mapping[str, onnx.TensorProto]:
        return constants(self.proto)
