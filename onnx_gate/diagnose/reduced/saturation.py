"""What share of each layer's values a quantiser's own scale cuts off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.graph.constants import Constants
from onnx_gate.graph.graph import Graph, Node, read_graph
from onnx_gate.graph.session import PlainSession
from onnx_gate.graph.walk import attribute, inlined
from onnx_gate.report.model.diagnosis import Saturated
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.subject import Subject

# Layers that the report lists, and bytes of a file that is held once more.
_MOST, _BYTES = 20, 2**28
# The integers of each type that values are rounded to.
_ENDS: Mapping[int, tuple[int, int]] = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-(2**15), 2**15 - 1),
    TensorProto.UINT16: (0, 2**16 - 1),
}
# Which input is the zero point of the result, of operators that compute with integers (ONNX's
# schemas, and those of ONNX Runtime's contrib operators).
_ZERO_POINT = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"), 7),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"), 4),
    "QGemm": 8,
}


@dataclass(frozen=True)
class _Quantiser:
    """A node that rounds to integers: the ``value`` that shows what it cuts off, which lies between
    ``low`` and ``high`` where nothing is. That is what a QuantizeLinear is given, and what all others
    return: an integer at an end of its range may have been beyond it."""

    node: Node
    value: str
    low: Array
    high: Array


def saturated(checker: Checker, subject: Subject, seconds: float) -> tuple[Saturated, ...]:
    """Return the layers that saturate in ordinary cases, the worst first; none of dynamic scales.

    Values of edges and of what was reached are beyond what anybody calibrates for.
    """
    exported = subject.exported
    if exported.size > _BYTES:
        return ()
    graph = read_graph(exported.proto, exported.path)
    found = list(_quantisers(graph))
    if not found:
        return ()
    session = PlainSession(_watched(inlined(onnx.load(str(exported.path))), found))
    worst, deadline = np.zeros(len(found)), Deadline(seconds)
    for case in checker.ordinary():
        if deadline.passed():
            break
        feeds = {graph: case.arrays[name] for name, graph in checker.setting.graph_inputs.items()}
        try:
            shares = np.array([float(each) for each in session.run(feeds)[-len(found) :]])
        except Refusal:
            continue
        worst = np.fmax(worst, shares)
    origins = Origins(subject)
    order = sorted((i for i in range(len(found)) if worst[i] > 0), key=lambda i: -worst[i])
    return tuple(_told(found[i], float(worst[i]), origins) for i in order[:_MOST])


def _told(quantiser: _Quantiser, share: float, origins: Origins) -> Saturated:
    node = quantiser.node
    name = node.proto.output[0]
    quantises = node.op_type == "QuantizeLinear"
    fields = origins.fields(node, name)
    return Saturated(
        **{**fields, "module": fields["module"] or None},
        share=share,
        ends=(quantiser.low.item(), quantiser.high.item()) if quantises else None,
        source=origins.source(node, name),
    )


def _quantisers(graph: Graph) -> Iterator[_Quantiser]:
    for node in graph.nodes:
        if not node.proto.input or graph.is_constant(node.proto.input[0]):
            continue
        quantises = node.op_type == "QuantizeLinear"
        known = (_ends if quantises else _integer_ends)(node, graph.constants)
        if known is not None:
            value = node.proto.input[0] if quantises else node.proto.output[0]
            yield _Quantiser(node, value, *known)


def _ends(node: Node, constants: Constants) -> tuple[Array, Array] | None:
    """Return the least and the largest value that is not cut off, ``None`` where that is not known."""
    scale, *zero = [name for name in node.proto.input[1:] if name]
    if scale not in constants or any(name not in constants for name in zero):
        return None
    step = constants.array(scale).astype(np.float64)
    if step.size > 1:  # values, unlike weights, have one scale
        return None
    kind = attribute(node.proto, "output_dtype", 0) or TensorProto.UINT8
    shift: Array = np.zeros(())
    if zero:
        kind = constants.tensor(zero[0]).data_type
        shift = constants.array(zero[0]).astype(np.float64)
    if kind not in _ENDS:
        return None
    least, most = _ENDS[kind]
    # One that begins at zero is a ReLU too: quantisers leave that one out.
    low = -np.inf if shift == least else (least - 0.5 - shift) * step
    return np.asarray(low), (most + 0.5 - shift) * step


def _integer_ends(node: Node, constants: Constants) -> tuple[Array, Array] | None:
    """Return what lies around the integers that are no end of the result's; ``None`` as ``_ends``."""
    place = _ZERO_POINT.get(node.op_type, len(node.proto.input))
    zero = next(iter(node.proto.input[place:]), "")
    if zero not in constants or constants.tensor(zero).data_type not in _ENDS:
        return None
    least, most = _ENDS[constants.tensor(zero).data_type]
    low = -np.inf if constants.array(zero) == least else least + 0.5
    return np.asarray(low), np.asarray(most - 0.5)


def _watched(model: onnx.ModelProto, found: list[_Quantiser]) -> onnx.ModelProto:
    """Add to a model the share that each quantiser cuts off, as outputs."""
    graph = model.graph
    for index, each in enumerate(found):
        base = f"__saturated{index}"
        graph.node.append(
            helper.make_node("Cast", [each.value], [f"{base}v"], to=TensorProto.FLOAT)
        )
        for name, end in ((f"{base}low", each.low), (f"{base}high", each.high)):
            array = np.asarray(end, np.float32).reshape(())
            graph.initializer.append(numpy_helper.from_array(array, name))
        steps = [
            ("Less", [f"{base}v", f"{base}low"], f"{base}a"),
            ("Greater", [f"{base}v", f"{base}high"], f"{base}b"),
            ("Or", [f"{base}a", f"{base}b"], f"{base}c"),
        ]
        graph.node.extend(helper.make_node(op, given, [made]) for op, given, made in steps)
        graph.node.append(
            helper.make_node("Cast", [f"{base}c"], [f"{base}d"], to=TensorProto.FLOAT)
        )
        graph.node.append(helper.make_node("ReduceMean", [f"{base}d"], [base], keepdims=0))
        graph.output.append(helper.make_tensor_value_info(base, TensorProto.FLOAT, []))
    return model
