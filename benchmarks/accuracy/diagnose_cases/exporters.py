"""Export functions as people write them: with a lowering of their own that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from onnxscript import opset20 as op
from torch import Tensor, nn

OPSET = 17


def _gelu(x: Any, approximate: str = "none") -> Any:
    return op.Gelu(x, approximate="tanh")


def _silu(x: Any) -> Any:
    return op.Mul(x, op.HardSigmoid(x))


def _rsqrt(x: Any) -> Any:
    return op.Reciprocal(x)


def _layer_norm(
    x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    mean = op.ReduceMean(x, op.Constant(value_ints=[-1]), keepdims=1)  # type: ignore[arg-type]
    centred = op.Sub(x, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), op.Constant(value_ints=[-1]), keepdims=1)  # type: ignore[arg-type]
    deviation = op.Sqrt(op.Add(variance, op.Constant(value_float=1e-3)))
    return op.Add(op.Mul(op.Div(centred, deviation), weight), bias)


def _floor_divide(a: Any, b: Any) -> Any:
    return op.Div(a, b)


def _mish(x: Any) -> Any:
    return op.Mul(x, op.Sigmoid(op.Softplus(x)))


TABLES: Mapping[str, dict[Any, Callable[..., Any]]] = {
    "gelu": {torch.ops.aten.gelu.default: _gelu},
    "silu": {torch.ops.aten.silu.default: _silu},
    "rsqrt": {torch.ops.aten.rsqrt.default: _rsqrt},
    "layer_norm": {torch.ops.aten.layer_norm.default: _layer_norm},
    "floor_divide": {torch.ops.aten.floor_divide.default: _floor_divide},
    "mish": {torch.ops.aten.mish.default: _mish},
}


def dynamo(name: str, module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Export with one of the tables above."""
    program = torch.onnx.export(
        module,
        (),
        kwargs=example,
        dynamo=True,
        verbose=False,
        custom_translation_table=TABLES[name],
    )
    assert program is not None
    program.save(str(path))


@contextmanager
def _symbolic(name: str, function: Callable[..., Any]) -> Iterator[None]:
    torch.onnx.register_custom_op_symbolic(name, function, OPSET)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.onnx.unregister_custom_op_symbolic(name, OPSET)  # type: ignore[attr-defined]


def _hardswish(g: Any, x: Any) -> Any:
    # The slope of HardSigmoid is 0.2 unless it is given; hardswish needs 1/6.
    return g.op("Mul", x, g.op("HardSigmoid", x))


def _logsumexp_softmax(g: Any, x: Any, dim: Any, dtype: Any = None) -> Any:
    return g.op("Softmax", x, axis_i=1)


SYMBOLICS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "hardswish": ("aten::hardswish", _hardswish),
    "softmax": ("aten::softmax", _logsumexp_softmax),
}


def torchscript(name: str, module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Export by tracing with one of the symbolics above."""
    with _symbolic(*SYMBOLICS[name]):
        torch.onnx.export(
            module,
            tuple(example.values()),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=list(example),
        )


# A manifest names a function of three arguments.
for _name in TABLES:
    globals()[f"dynamo_{_name}"] = lambda module, example, path, _name=_name: dynamo(
        _name, module, example, path
    )
for _name in SYMBOLICS:
    globals()[f"torchscript_{_name}"] = lambda module, example, path, _name=_name: torchscript(
        _name, module, example, path
    )
