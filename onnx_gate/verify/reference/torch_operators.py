"""Operators of ONNX computed by PyTorch, for which ONNX's own reference evaluator is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_average_pool import AveragePool_19 as _AveragePool
from onnx.reference.ops.op_max_pool import MaxPool as _MaxPool

from onnx_gate.runtimes.base import Array


def _tensor(array: Array) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _padding(
    x: Array, auto_pad: str | None, pads: Any, kernel: Any, strides: Any, dilations: Any
) -> list[int]:
    """Return the padding as ONNX lists it: all beginnings, then all ends."""
    rank = x.ndim - 2
    if auto_pad in (None, "", "NOTSET", "VALID"):
        return list(pads) if pads is not None and auto_pad != "VALID" else [0] * 2 * rank
    first, last = [], []
    for size, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        less, more = total // 2, total - total // 2
        first.append(less if auto_pad == "SAME_UPPER" else more)
        last.append(more if auto_pad == "SAME_UPPER" else less)
    return first + last


def _padded(x: torch.Tensor, pads: Sequence[int], value: float = 0.0) -> torch.Tensor:
    rank = x.ndim - 2
    pairs = [p for axis in reversed(range(rank)) for p in (pads[axis], pads[axis + rank])]
    return F.pad(x, pairs, value=value) if any(pairs) else x


def _ones(rank: int, values: Sequence[int] | None) -> list[int]:
    return list(values or [1] * rank)


def _bias(array: Array | None) -> torch.Tensor | None:
    return None if array is None else _tensor(array)


def _window(x: Array, options: Mapping[str, Any]) -> tuple[list[int], list[int], list[int]]:
    """Return how a window moves, with which gaps, and over what padding."""
    strides, dilations = (_ones(x.ndim - 2, options.get(key)) for key in ("strides", "dilations"))
    kernel, pads = options["kernel_shape"], options.get("pads")
    padding = _padding(x, options.get("auto_pad"), pads, kernel, strides, dilations)
    return strides, dilations, padding


class Conv(OpRun):
    """``Conv`` by PyTorch."""

    def _run(self, X, W, B=None, **options):  # type: ignore[no-untyped-def]
        strides, dilations, pads = _window(X, {**options, "kernel_shape": W.shape[2:]})
        x, w, b = _tensor(X), _tensor(W), _bias(B)
        conv = (F.conv1d, F.conv2d, F.conv3d)[X.ndim - 3]
        y = conv(_padded(x, pads), w, b, strides, 0, dilations, options.get("group") or 1)
        return (y.numpy(),)


class ConvTranspose(OpRun):
    """``ConvTranspose`` by PyTorch."""

    def _run(self, X, W, B=None, **options):  # type: ignore[no-untyped-def]
        rank = X.ndim - 2
        pads = list(options.get("pads") or [0] * 2 * rank)
        padded = options.get("auto_pad") not in (None, "", "NOTSET")
        if options.get("output_shape") is not None or padded:
            raise NotImplementedError("ConvTranspose with output_shape or auto_pad")
        x, w, b = _tensor(X), _tensor(W), _bias(B)
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        strides, dilations = (_ones(rank, options.get(key)) for key in ("strides", "dilations"))
        extra = list(options.get("output_padding") or [0] * rank)
        y = conv(x, w, b, strides, 0, 0, options.get("group") or 1, dilations)
        # Cut and extended afterwards: PyTorch takes one padding for both ends.
        ends = [e - p for e, p in zip(extra, pads[rank:], strict=True)]
        y = _padded(y, [*(-p for p in pads[:rank]), *(min(e, 0) for e in ends)])
        grown = _padded(y, [*([0] * rank), *(max(e, 0) for e in ends)])
        if b is not None and grown.shape != y.shape:
            raise NotImplementedError("ConvTranspose whose output is larger than its sums")
        return (grown.numpy(),)


class MaxPool(_MaxPool):
    """``MaxPool`` by PyTorch, where it has one output."""

    def _run(self, x, **options):  # type: ignore[no-untyped-def, override]
        rank, kernel = x.ndim - 2, options["kernel_shape"]
        if len(self.onnx_node.output) > 1 or options.get("storage_order") or rank > 3:
            return super()._run(x, **options)
        if options.get("ceil_mode"):
            return super()._run(x, **options)
        strides, dilations, pads = _window(x, options)
        lowest = -np.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        padded = _padded(_tensor(x), pads, lowest)
        return (pool(padded, list(kernel), strides, 0, dilations).numpy(),)


class AveragePool(_AveragePool):
    """``AveragePool`` by PyTorch, where nothing is padded or padding counts."""

    def _run(self, x, **options):  # type: ignore[no-untyped-def, override]
        rank, kernel = x.ndim - 2, options["kernel_shape"]
        strides, dilations, pads = _window(x, options)
        counted = options.get("count_include_pad") or not any(pads)
        if options.get("ceil_mode") or not counted or max(dilations) > 1 or rank > 3:
            return super()._run(x, **options)
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        padded = _padded(_tensor(x), pads)
        return (pool(padded, list(kernel), strides).numpy(),)


class Erf(OpRun):
    """``Erf`` by PyTorch."""

    def _run(self, x):  # type: ignore[no-untyped-def]
        return (torch.erf(_tensor(x)).numpy(),)


class Gelu(OpRun):
    """``Gelu`` by PyTorch."""

    def _run(self, x, approximate=None):  # type: ignore[no-untyped-def]
        tensor = _tensor(x)
        return (F.gelu(tensor, approximate=approximate or "none").numpy(),)


TORCH_OPERATORS = (Conv, ConvTranspose, MaxPool, AveragePool, Erf, Gelu)
