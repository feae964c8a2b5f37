"""Graphs written by hand, as a port of a model to ONNX has them: each misreads one convention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

_KINDS = {torch.float32: TensorProto.FLOAT, torch.int64: TensorProto.INT64}


def _node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(
        op_type, inputs.split(), outputs.split(), name=f"node_{outputs}", **attributes
    )


def _write(
    path: Path,
    example: dict[str, Tensor],
    nodes: Sequence[onnx.NodeProto],
    output: tuple[int, list[int | str]],
    **constants: object,
) -> None:
    """Write a graph from ``example``'s inputs, their first axis dynamic, to the value ``y``."""
    inputs = [
        helper.make_tensor_value_info(name, _KINDS[t.dtype], ["batch", *t.shape[1:]])
        for name, t in example.items()
    ]
    tensors = [
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    ]
    outputs = [helper.make_tensor_value_info("y", *output)]
    graph = helper.make_graph(list(nodes), "written", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))


def remainder(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Mod", "x three", "y", fmod=0)]
    _write(path, example, nodes, (TensorProto.INT64, ["batch", 8]), three=np.int64(3))


def quotient(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Div", "x three", "y")]
    _write(path, example, nodes, (TensorProto.INT64, ["batch", 8]), three=np.int64(3))


def rounding(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Round", "x", "y")]
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8]))


def enlarging(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    mode = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    nodes = [_node("Resize", "x roi scales", "y", **mode)]
    nodes[0].input[1] = ""
    output = (TensorProto.FLOAT, ["batch", 2, 8, 8])
    _write(path, example, nodes, output, scales=np.array([1, 1, 2, 2], np.float32))


def normalising(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("LayerNormalization", "x scale", "y", axis=-1, epsilon=1e-3)]
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8]), scale=np.ones(8, np.float32))


def standardising(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    names = "x scale bias mean variance"
    nodes = [_node("BatchNormalization", names, "y running_mean running_var", training_mode=1)]
    ones, zeros = np.ones(8, np.float32), np.zeros(8, np.float32)
    constants = {"scale": ones, "bias": zeros, "mean": zeros, "variance": ones}
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8]), **constants)


def scattering(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _write(path, example, [_node("RandomNormalLike", "x", "y")], (TensorProto.FLOAT, ["batch", 8]))


def activating(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Gelu", "x", "y", approximate="tanh")]
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8]))


def choosing(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("ArgMax", "x", "y", axis=-1, keepdims=0, select_last_index=1)]
    _write(path, example, nodes, (TensorProto.INT64, ["batch"]))


def pooling(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [
        _node(
            "AveragePool", "x", "y", kernel_shape=[3], strides=[2], pads=[1, 1], count_include_pad=0
        )
    ]
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 2, 4]))


def summing(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("CumSum", "x axis", "y", exclusive=1)]
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8]), axis=np.int64(1))


def rooting(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Pow", "x half", "y")]
    half = np.float32(0.5)
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8]), half=half)


def looking_up(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Gather", "table x", "y", axis=0)]
    table = module.table.detach().numpy()
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 8, 4]), table=table)


def shortening(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [
        _node("Cast", "x", "short", to=TensorProto.INT8),
        _node("Cast", "short", "y", to=TensorProto.INT32),
    ]
    _write(path, example, nodes, (TensorProto.INT32, ["batch", 8]))


def attending(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Softmax", "x", "y", axis=1)]
    _write(path, example, nodes, (TensorProto.FLOAT, ["batch", 4, 8]))


def quantising(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [
        _node("QuantizeLinear", "x scale zero", "short"),
        _node("DequantizeLinear", "short scale zero", "y"),
    ]
    _write(
        path,
        example,
        nodes,
        (TensorProto.FLOAT, ["batch", 8]),
        scale=np.float32(0.06),
        zero=np.int8(0),
    )


def selecting(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    nodes = [_node("Greater", "x limit", "above"), _node("Reshape", "above flat", "all")]
    nodes += [_node("Compress", "x all", "y")]
    limit, flat = np.float32(0.3), np.array([-1])
    _write(path, example, nodes, (TensorProto.FLOAT, ["kept"]), limit=limit, flat=flat)


def gating(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Export it right, and forget what PyTorch's GRU resets before what."""
    torch.onnx.export(
        module, tuple(example.values()), str(path), dynamo=False, input_names=list(example)
    )
    model = onnx.load(str(path))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "linear_before_reset":
                attribute.i = 0
    onnx.save(model, str(path))


def converted(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Ask for an opset that the exporter converts down to, and edit what comes of it."""
    torch.onnx.export(
        module,
        (),
        str(path),
        kwargs=dict(example),
        dynamo=True,
        verbose=False,
        opset_version=17,
        dynamic_shapes={name: {0: "batch"} for name in example},
    )
    model = onnx.load(str(path))
    for node in model.graph.node:
        if node.op_type == "ReduceMax":
            for attribute in node.attribute:
                if attribute.name == "axes":
                    attribute.ints[:] = [1]
    onnx.save(model, str(path))
