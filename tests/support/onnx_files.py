"""Small ONNX files, written node by node: what converters make of one another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)


def network(path: Path) -> onnx.ModelProto:
    """Write two layers and a softmax; the input is ``x: float32[batch, 8]``."""
    weights = {
        "w0": RNG.normal(size=(8, 16)).astype(np.float32),
        "b0": RNG.normal(size=16).astype(np.float32),
        "w1": RNG.normal(size=(16, 4)).astype(np.float32),
        "b1": RNG.normal(size=4).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["product"], "first"),
        helper.make_node("Add", ["product", "b0"], ["hidden"], "first_bias"),
        helper.make_node("Erf", ["hidden"], ["active"], "activation"),
        helper.make_node("MatMul", ["active", "w1"], ["scores"], "second"),
        helper.make_node("Add", ["scores", "b1"], ["logits"], "second_bias"),
        helper.make_node("Softmax", ["logits"], ["y"], "last", axis=-1),
    ]
    return save(path, nodes, weights, [("x", TensorProto.FLOAT, ["batch", 8])], [("y", 4)])


def scaling(path: Path, factor: float) -> None:
    """Write a graph that multiplies ``x: float32[batch, 8]`` by a number."""
    weights = {"factor": np.array(factor, np.float32)}
    nodes = [helper.make_node("Mul", ["x", "factor"], ["output"])]
    save(path, nodes, weights, [("x", TensorProto.FLOAT, ["batch", 8])], [("output", 8)])


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    inputs: list[tuple[str, int, list[int | str]]],
    outputs: list[tuple[str, int]],
) -> onnx.ModelProto:
    """Write a graph whose outputs are ``float32[batch, size]``."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
            for name, size in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(proto, path)
    return proto


def optimised(source: Path, target: Path) -> None:
    """Write what ONNX Runtime makes of a file as it loads it."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def with_weight(proto: onnx.ModelProto, path: Path, name: str, factor: float) -> None:
    """Write a copy in which one column of a weight is ``factor`` times as large."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.name == name:
            array = numpy_helper.to_array(tensor).copy()
            array[..., 1] *= factor
            tensor.CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(copy, path)


def renamed(source: Path, target: Path) -> None:
    """Write a copy in which every value between inputs and outputs has another name."""
    proto = onnx.load(source)
    graph = proto.graph
    kept = {v.name for v in (*graph.input, *graph.output)}
    names = [*(t.name for t in graph.initializer), *(o for n in graph.node for o in n.output)]
    new = {name: f"v{number}" for number, name in enumerate(names) if name not in kept}
    for tensor in graph.initializer:
        tensor.name = new[tensor.name]
    for number, node in enumerate(graph.node):
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
        node.name = f"n{number}"
    onnx.save(proto, target)
