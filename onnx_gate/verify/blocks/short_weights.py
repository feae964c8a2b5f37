"""Which parameters those weights are that a file keeps in few bits: told by some of their rows, widened.

The numbers that come of few bits are nobody's bit for bit, and what quantises a file gives them names
of its own. But four bits keep all but a hundredth of a weight, and no two weights of a network have rows
alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx.helper import get_attribute_value

from onnx_gate.graph.graph import Graph, Node, read_graph
from onnx_gate.graph.packed import packed_weight
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.export.exported import Exported

_Rows = NDArray[np.float32]

# So many rows tell weights from each other.
_ROWS = 8
# The cosine of a weight and of what few bits make of it: 0.99 in four, 0.9 in two; of two weights it is 0.
_ALIKE = 0.8


@dataclass(frozen=True)
class _Short:
    """A stored tensor of few bits: the shape of the weight, and its first rows or columns, ``[8, n]``."""

    name: str
    shape: tuple[int, int]
    rows: _Rows
    columns: _Rows | None = None


def short_weights(exported: Exported, skeleton: Skeleton) -> dict[str, str]:
    """Return the parameters by the names of a file's tensors that are these in few bits.

    It costs one read of the checkpoint's matrices.
    """
    stored = list(_stored(read_graph(exported.proto, exported.path)))
    if not stored:
        return {}
    shapes = {shape for each in stored for shape in (each.shape, each.shape[::-1])}
    known: dict[tuple[int, ...], dict[str, _Rows]] = {}
    for weight in skeleton.distinct(tuple(skeleton.parameters)):
        name = weight.names[0]
        if tuple(weight.stored.shape) in shapes:
            values = skeleton.values(name)
            assert values is not None
            known.setdefault(tuple(values.shape), {})[name] = values[:_ROWS].float().numpy()
    found = {}
    for each in stored:
        alike = _nearest(each.rows, known.get(each.shape, {}))
        if alike is None and each.columns is not None:
            alike = _nearest(each.columns, known.get(each.shape[::-1], {}))
        if alike is not None:
            found[each.name] = alike
    return found


def _nearest(rows: _Rows, known: Mapping[str, _Rows]) -> str | None:
    best, alike = _ALIKE, None
    for name, other in known.items():
        size = float(np.linalg.norm(rows)) * float(np.linalg.norm(other))
        cosine = float((rows * other).sum()) / size if size else 0.0
        if cosine > best:
            best, alike = cosine, name
    return alike


def _stored(graph: Graph) -> Iterator[_Short]:
    for node in graph.nodes:
        if node.op_type == "MatMulNBits" and node.inputs[1] in graph.constants:
            weight = _of_blocks(graph, node)
            if weight is not None:
                yield weight
        elif node.op_type == "DequantizeLinear" and len(_dims(graph, node.inputs[0])) == 2:
            yield _dequantised(graph, node)


def _dims(graph: Graph, name: str) -> tuple[int, ...]:
    return graph.constants.dims(name) if name in graph.constants else ()


def _attribute(node: Node, name: str, default: int) -> int:
    found = (get_attribute_value(a) for a in node.proto.attribute if a.name == name)
    return int(next(found, default))


def _of_blocks(graph: Graph, node: Node) -> _Short | None:
    """Return a weight as ``MatMulNBits`` has it."""
    shape = _attribute(node, "N", 0), _attribute(node, "K", 0)
    stored = {n: graph.constants.array(n) for n in node.inputs[1:4] if n in graph.constants}
    rows = {n: a.reshape(shape[0], -1)[:_ROWS] for n, a in stored.items()}
    weight = packed_weight(node.proto, rows)
    if weight is None:
        return None
    scale, zero = (
        np.repeat(each.astype(np.float32), weight.block, 1)[:, : shape[1]]
        for each in (weight.scale, weight.zero)
    )
    return _Short(node.inputs[1], shape, (weight.numbers - zero) * scale)


def _dequantised(graph: Graph, node: Node) -> _Short:
    name, scale, *zero = node.inputs
    x = graph.constants.array(name)
    axis, block = _attribute(node, "axis", 1), _attribute(node, "block_size", 0)

    def spread(values: Array) -> Array:
        if block and values.ndim == 2:
            values = np.repeat(values, block, axis=axis)[tuple(map(slice, x.shape))]
        elif values.size > 1:
            values = values.reshape([-1 if at == axis % 2 else 1 for at in range(2)])
        return np.broadcast_to(values.astype(np.float32), x.shape)

    factor = spread(graph.constants.array(scale))
    offset = spread(graph.constants.array(zero[0])) if zero and zero[0] else spread(np.zeros(1))

    def wide(part: tuple[slice, ...]) -> _Rows:
        made: _Rows = (x[part].astype(np.float32) - offset[part]) * factor[part]
        return made

    rows, columns = wide((slice(_ROWS),)), wide((slice(None), slice(_ROWS)))
    return _Short(name, (x.shape[0], x.shape[1]), rows, columns.T)
