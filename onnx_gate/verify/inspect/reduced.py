"""Whether a file computes in fewer bits than its module, read from the graph without running it.

Such a file is no export that went wrong: its numbers are meant to differ, by what its bits cost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import onnx
import torch
from onnx import TensorProto

from onnx_gate.graph.walk import all_nodes, constants
from onnx_gate.manifest import EXPORTERS
from onnx_gate.runtimes import state
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.verify.context import Reduced

# Operators of ONNX and of ONNX Runtime that compute with the scale of the values they get.
_DYNAMIC = frozenset(
    {
        *("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulInteger"),
        *("MatMulIntegerToFloat", "ConvInteger"),
    }
)
# Products with weights in blocks of few bits, and how many bits where no attribute says so.
_BLOCKS: Mapping[str, int] = {
    "MatMulNBits": 4,
    "GatherBlockQuantized": 4,
    "MatMulBnb4": 4,
    "QMoE": 4,
}
HALF: Mapping[int, str] = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
# A file is in half precision where this share of its floating-point weights is.
_MOST = 0.5


def reduced_precision(
    proto: onnx.ModelProto, exporter: str, module: torch.nn.Module
) -> Reduced | None:
    """Return how a file made from ``module`` computes in fewer bits, ``None`` where it does not.

    ``proto`` need not hold the weights' values. Where another file is in the module's place, that
    may compute in as few.
    """
    # Whatever is quantised in what PyTorch's exporters write is the module's.
    reduced = _of_file(proto) if exporter not in EXPORTERS else None
    if reduced is not None and isinstance(module, FileModule):
        other = _of_file(onnx.load(str(module.path), load_external_data=False))
        return None if other is not None and other.how == reduced.how else reduced
    if reduced is None or not reduced.is_half:
        return reduced
    in_file = _sizes((HALF.get(t.data_type, ""), t.dims) for t in proto.graph.initializer)
    own = _sizes(
        (str(t.dtype).removeprefix("torch."), t.shape)
        for _, t in state.tensors(module)
        if t.is_floating_point()
    )
    # Weights that are as short in the module are no fewer bits than it has; a file may have some twice.
    if _most(own) == reduced.dtype or own[reduced.dtype] >= _MOST * in_file[reduced.dtype]:
        return None
    return replace(reduced, model=_most(own) or reduced.model)


def _of_file(proto: onnx.ModelProto) -> Reduced | None:
    nodes = list(all_nodes(proto))
    counts = Counter(node.op_type for node in nodes)
    integer = _integer(nodes, counts, constants(proto))
    if integer is not None:
        return integer
    dtype = _half(proto.graph.initializer)
    if dtype is None:
        return None
    return Reduced("half", dtype, {"Cast": counts["Cast"]} if counts["Cast"] else {})


def _integer(
    nodes: Iterable[onnx.NodeProto],
    counts: Mapping[str, int],
    known: Mapping[str, onnx.TensorProto],
) -> Reduced | None:
    static = {n: c for n, c in counts.items() if n == "QuantizeLinear" or _is_qlinear(n)}
    if static:
        names = {n: c for n, c in counts.items() if n in static or n == "DequantizeLinear"}
        return Reduced("static", _stored(nodes, known) or "int8", names)
    dynamic = {name: count for name, count in counts.items() if name in _DYNAMIC}
    if dynamic:
        return Reduced("dynamic", "int8", dynamic)
    blocks = {name: count for name, count in counts.items() if name in _BLOCKS}
    if blocks:
        bits = next(_bits(node) for node in nodes if node.op_type in _BLOCKS)
        return Reduced("weights", f"int{bits}", blocks)
    if counts.get("DequantizeLinear"):
        names = {"DequantizeLinear": counts["DequantizeLinear"]}
        return Reduced("weights", _stored(nodes, known) or "int8", names)
    return None


def _is_qlinear(op_type: str) -> bool:
    return op_type.startswith("QLinear") or op_type in ("QGemm", "QAttention", "QEmbedLayerNorm")


def _stored(nodes: Iterable[onnx.NodeProto], known: Mapping[str, onnx.TensorProto]) -> str | None:
    """Return the dtype of most weights that are dequantised, without their sign."""
    kinds: Counter[str] = Counter()
    for node in nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] in known:
            tensor = known[node.input[0]]
            name = TensorProto.DataType.Name(tensor.data_type).lower()
            if tensor.data_type != TensorProto.INT32:  # a bias
                kinds[name.removeprefix("u")] += math.prod(tensor.dims)
    return kinds.most_common(1)[0][0] if kinds else None


def _bits(node: onnx.NodeProto) -> int:
    named = (a.i for a in node.attribute if a.name == "bits")
    return int(next(named, _BLOCKS[node.op_type]))


def _half(weights: Iterable[onnx.TensorProto]) -> str | None:
    names = {**HALF, TensorProto.FLOAT: "wide", TensorProto.DOUBLE: "wide"}
    sizes = _sizes((names[t.data_type], t.dims) for t in weights if t.data_type in names)
    name = _most(sizes)
    return None if name == "wide" else name


def _most(sizes: Counter[str]) -> str | None:
    """Return of which kind more than half of all numbers are, ``None`` for none."""
    name, size = sizes.most_common(1)[0] if sizes else ("", 0)
    return name if size > _MOST * sizes.total() else None


def _sizes(tensors: Iterable[tuple[str, Iterable[int]]]) -> Counter[str]:
    """Return how many numbers of each kind tensors have."""
    sizes: Counter[str] = Counter()
    for kind, shape in tensors:
        sizes[kind] += math.prod(shape)
    return sizes
