"""Three small models, and what ONNX Runtime's own tools make of them in fewer bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.body = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.body(F.relu(self.norm(self.stem(x)))))
        logits: Tensor = self.head(y.flatten(2).transpose(1, 2)).mean(1)
        return logits


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.proj = nn.Linear(32, 32)
        self.behind = nn.LayerNorm(32)
        self.up = nn.Linear(32, 128)
        self.down = nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, 32))
        result: Tensor = x + self.down(F.gelu(self.up(self.behind(x))))
        return result


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        logits: Tensor = self.last(torch.relu(self.second(y))).mean(1)
        return logits


def seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def cnn() -> nn.Module:
    return seeded(CNN)


def block() -> nn.Module:
    return seeded(Block)


def mlp() -> nn.Module:
    return seeded(MLP)


SHAPES = {"cnn": ("batch", 3, 16, 16), "block": ("batch", 6, 32), "mlp": ("batch", 4, 32)}
HOW = ("static", "dynamic", "fp16", "int4")


def export(model: str, path: Path) -> None:
    """Export a model in float32, without the shapes that quantising trips over."""
    shape = tuple(4 if isinstance(size, str) else size for size in SHAPES[model])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            globals()[model](),
            (torch.randn(shape),),
            str(path),
            input_names=["x"],
            output_names=["logits"],
            dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    proto = onnx.load(str(path))
    del proto.graph.value_info[:]
    onnx.save(proto, str(path))


def quantise(source: Path, how: str, path: Path, shape: tuple[int | str, ...]) -> None:
    """Write what ONNX Runtime's tools make of a float file."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.transformers.float16 import convert_float_to_float16

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = self._draw()

        def _draw(self) -> Iterator[dict[str, np.ndarray]]:
            rng = np.random.default_rng(0)
            sizes = [16 if isinstance(size, str) else size for size in shape]
            for _ in range(4):
                yield {"x": rng.standard_normal(sizes).astype(np.float32)}

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._batches, None)

    if how == "static":
        quantize_static(str(source), str(path), Reader(), quant_format=QuantFormat.QDQ)
    elif how == "qoperator":
        quantize_static(str(source), str(path), Reader(), quant_format=QuantFormat.QOperator)
    elif how == "dynamic":
        quantize_dynamic(str(source), str(path))
    elif how == "int4":
        quantizer = MatMulNBitsQuantizer(onnx.load(str(source)), block_size=16, is_symmetric=True)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path), False)
    else:
        half = convert_float_to_float16(onnx.load(str(source)), keep_io_types=how == "fp16")
        onnx.save(half, str(path))


def with_wrong_scale(source: Path, path: Path, scale: str, factor: float) -> None:
    """Write a file with the scales of one tensor multiplied."""
    proto = onnx.load(str(source))
    for tensor in proto.graph.initializer:
        if tensor.name == scale:
            array = numpy_helper.to_array(tensor)
            changed = (array * array.dtype.type(factor)).astype(array.dtype)
            tensor.CopyFrom(numpy_helper.from_array(changed, scale))
            onnx.save(proto, str(path))
            return
    raise KeyError(f"{scale} is none of {[t.name for t in proto.graph.initializer]}")


def scale_of(source: Path, index: int) -> str:
    """Return the name of the scales of the weights of a file's product number ``index``."""
    proto = onnx.load(str(source))
    known = {tensor.name for tensor in proto.graph.initializer}
    made = {name: node for node in proto.graph.node for name in node.output}
    scales = []
    for node in proto.graph.node:
        if node.op_type in ("Conv", "MatMul", "Gemm"):
            weights = made.get(node.input[1])
            if weights is not None and weights.input[0] in known:
                scales.append(weights.input[1])
        elif node.op_type in ("ConvInteger", "MatMulInteger") and node.input[1] in known:
            scales.append(node.input[1].removesuffix("_quantized") + "_scale")
        elif node.op_type in ("QLinearConv", "QLinearMatMul") and node.input[3] in known:
            scales.append(node.input[4])
        elif node.op_type == "MatMulNBits":
            scales.append(node.input[2])
    return str(scales[index])
