"""Exporters as users write them: one that is right, and some with a mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper


def right(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    names = list(example)
    torch.onnx.export(
        module,
        tuple(example.values()),
        str(path),
        input_names=names,
        dynamo=True,
        verbose=False,
        dynamic_shapes=tuple({0: "batch"} for _ in names),
    )


def static_batch(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    torch.onnx.export(
        module,
        tuple(example.values()),
        str(path),
        input_names=list(example),
        dynamo=True,
        verbose=False,
    )


def rounded(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """Weights that went through bfloat16."""
    right(module, example, path)
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 2:
            short = torch.from_numpy(values.copy()).bfloat16().float().numpy()
            tensor.CopyFrom(numpy_helper.from_array(short, tensor.name))
    onnx.save(model, str(path))


def wrong_epsilon(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    right(module, example, path)
    model = onnx.load(str(path))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f *= 10
    onnx.save(model, str(path))


def swapped(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """Outputs in another order."""
    right(module, example, path)
    model = onnx.load(str(path))
    outputs = list(model.graph.output)
    del model.graph.output[:]
    model.graph.output.extend(reversed(outputs))
    onnx.save(model, str(path))


def narrowed(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """A float16 output where PyTorch has float32."""
    right(module, example, path)
    model = onnx.load(str(path))
    name = model.graph.output[0].name
    model.graph.node.append(onnx.helper.make_node("Cast", [name], ["narrow"], to=10))
    model.graph.output[0].name = "narrow"
    model.graph.output[0].type.tensor_type.elem_type = 10
    onnx.save(model, str(path))


def random_noise(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """A node that draws, too small to be seen in the numbers."""
    right(module, example, path)
    model = onnx.load(str(path))
    name = model.graph.output[0].name
    model.graph.node.extend(
        [
            onnx.helper.make_node("RandomUniformLike", [name], ["r"], low=0.0, high=1e-12),
            onnx.helper.make_node("Add", [name, "r"], ["noisy"]),
        ]
    )
    model.graph.output[0].name = "noisy"
    onnx.save(model, str(path))


def invalid(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """A node that reads a value nobody makes."""
    right(module, example, path)
    model = onnx.load(str(path))
    model.graph.node[0].input[0] = "nowhere"
    onnx.save(model, str(path))


def nothing(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """Forgets to write."""


def garbage(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
