"""The same models of rounding for the nodes of an ONNX graph, by PyTorch's names of what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch

from onnx_gate.runtimes.torch_eager import to_tensor
from onnx_gate.verify.reference.exact import CHOOSING, EXACT_ONNX
from onnx_gate.verify.reference.models import MODELS, PLAIN
from onnx_gate.verify.reference.noise import Exactness
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.reference.rounding import Model

_REDUCE = ("self", "dim")
# Operators of ONNX: PyTorch's name, and what PyTorch calls their inputs.
_AS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "MatMul": ("mm", ("self", "mat2")),
    "FusedMatMul": ("mm", ("self", "mat2")),
    "Gemm": ("addmm", ("mat1", "mat2", "self")),
    "Einsum": ("_trilinear", ("i1", "i2")),
    "Conv": ("convolution", ("input", "weight", "bias")),
    "ConvTranspose": ("convolution", ("input", "weight", "bias")),
    "ReduceSum": ("sum", _REDUCE),
    "ReduceMean": ("mean", _REDUCE),
    "ReduceL1": ("sum", _REDUCE),
    "ReduceL2": ("norm", _REDUCE),
    "ReduceSumSquare": ("sum", _REDUCE),
    "ReduceProd": ("prod", _REDUCE),
    "ReduceLogSumExp": ("logsumexp", _REDUCE),
    "CumSum": ("cumsum", _REDUCE),
    "DFT": ("_fft_c2c", ("self", "dft_length", "dim")),
    "GlobalAveragePool": ("mean", ("self",)),
    "AveragePool": ("avg_pool2d", ("self",)),
    "LogSoftmax": ("log_softmax", ("self",)),
    "BatchNormalization": (
        "native_batch_norm",
        ("input", "weight", "bias", "running_mean", "running_var"),
    ),
    "GridSample": ("grid_sampler_2d", ("input", "grid")),
    "ScatterElements": ("scatter_add", ("self", "index", "src")),
    "Resize": ("upsample_bilinear2d", ("self",)),
    "LayerNormalization": ("native_layer_norm", ("input", "weight", "bias")),
    "InstanceNormalization": ("native_group_norm", ("input", "weight", "bias")),
    "GroupNormalization": ("native_group_norm", ("input", "weight", "bias")),
    "QuantizeLinear": ("quantize_per_tensor", ("self",)),
    "HardSwish": ("hardswish", ("self",)),
    "HardSigmoid": ("hardsigmoid", ("self",)),
}
# A kernel that is a layer: its inputs and weights are moved by what sums over its width lose.
_LAYER = Model(("input", "weight", "recurrent"), lambda given: float(given["input"].shape[-1]))
_LAYERS = frozenset({"LSTM", "GRU", "RNN", "Attention", "MultiHeadAttention"})
_NORMS = frozenset({"LayerNormalization", "InstanceNormalization", "GroupNormalization"})


def run_node_moved(
    moved: MovedRounding,
    node: onnx.NodeProto,
    inputs: Sequence[Any],
    run: Callable[[Sequence[Any]], Sequence[Any]],
) -> Sequence[Any]:
    """Return the outputs of a node with its rounding moved."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in EXACT_ONNX and attributes.get("reduction", b"none").decode() in CHOOSING:
        return run(inputs)
    name, model, names = _model(node)
    tensors = [to_tensor(x) if isinstance(x, np.ndarray) else None for x in inputs]
    operands = Exactness([t for t in tensors if t is not None and t.is_floating_point()])
    given = {**_given(node.op_type, attributes), **dict(zip(names, tensors, strict=False))}
    _reduced_axes(name, node.op_type, given)
    for each, flag in zip(names, ("transA", "transB"), strict=False):
        if attributes.get(flag):
            given[each] = given[each].mT
    inputs = list(inputs)
    if not operands.all:
        keep = model.exact_sums(given, operands)
        for place, (each, operand) in enumerate(zip(names, tensors, strict=False)):
            if each in model.operands and operand is not None and operand.is_floating_point():
                copy = moved.moved_operand(operand, model, given, each, keep=keep).to(operand.dtype)
                inputs[place] = copy.numpy().astype(inputs[place].dtype)
    outputs = run(inputs)
    if model.domain is not None:
        inside = model.back_inside(given, torch.from_numpy(np.asarray(outputs[0])))
        if inside is not None:
            outputs = run([inside.numpy(), *inputs[1:]])
    if node.op_type in _NORMS:
        outputs = [_normalised(moved, node.op_type, attributes, tensors, outputs[0]), *outputs[1:]]
    for output in outputs:
        if isinstance(output, np.ndarray) and output.dtype.kind == "f":
            moved.finish(name, model, given, operands, torch.from_numpy(output))
    return outputs


def _model(node: onnx.NodeProto) -> tuple[str, Model, tuple[str, ...]]:
    if node.op_type in _LAYERS:
        return node.op_type, _LAYER, ("input", "weight", "recurrent")
    name, names = _AS.get(node.op_type, (node.op_type.lower(), ("self",)))
    if name not in MODELS and node.domain not in ("", "ai.onnx"):
        return name, _LAYER, ("input", "weight")
    return name, MODELS.get(name, PLAIN), names


def _given(op_type: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dim": attributes.get("axes", attributes.get("axis", -1 if "oftmax" in op_type else None)),
        "kernel_size": attributes.get("kernel_shape"),
        "transposed": op_type == "ConvTranspose",
        "stride": attributes.get("strides"),
        "groups": attributes.get("group", 1),
        "align_corners": attributes.get("coordinate_transformation_mode") == b"align_corners",
        **({"normalized_shape": None} if op_type == "LayerNormalization" else {}),
        "eps": attributes.get("epsilon", 1e-5),
        "reverse": attributes.get("reverse"),
    }


def _reduced_axes(name: str, op_type: str, given: dict[str, Any]) -> None:
    """Make the axes of a reduction numbers, wherever the operator has them from."""
    if isinstance(given["dim"], torch.Tensor):
        given["dim"] = [int(d) for d in given["dim"].reshape(-1)]
    if name == "cumsum":
        given["dim"] = given["dim"][0]
    if op_type == "GlobalAveragePool":
        given["dim"] = list(range(2, given["self"].ndim))
    if name == "_fft_c2c":
        given["dim"] = given["dim"] if isinstance(given["dim"], list) else [given["dim"] or 1]
        given["pairs"] = True


def _normalised(
    moved: MovedRounding,
    op_type: str,
    attributes: Mapping[str, Any],
    tensors: Sequence[torch.Tensor | None],
    output: Any,
) -> Any:
    """Return the result of a normalisation whose statistics, which it does not return, were moved."""
    x, weight = tensors[0], tensors[1]
    assert x is not None
    bias = tensors[2] if len(tensors) > 2 else None
    eps = attributes.get("epsilon", 1e-5)
    y = torch.from_numpy(output)
    if op_type == "LayerNormalization":
        axis = attributes.get("axis", -1) % x.ndim
        dims = tuple(range(axis, x.ndim))
        var, mean = torch.var_mean(x.float(), dims, correction=0, keepdim=True)
        name = "native_layer_norm"
    else:
        groups = attributes.get("num_groups", x.shape[1])
        var, mean = torch.var_mean(x.float().reshape(x.shape[0], groups, -1), -1, correction=0)
        name = "native_group_norm"
    given = {"input": x, "weight": weight, "bias": bias}
    moved.normalise(name, given, (y, mean, (var + eps).rsqrt()))
    return y.numpy()
