"""NumPy arrays as PyTorch's tensors, and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from onnx_gate.findings import codes
from onnx_gate.runtimes.base import Array, contiguous, first_line


def to_tensor(array: Array, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor with its own memory; ``dtype`` applies to floating-point arrays only."""
    array = contiguous(array)
    if array.dtype == ml_dtypes.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        # ONNX Runtime's uint64 is C's other type of 64 bits, which equals NumPy's and is none of PyTorch's.
        tensor = torch.from_numpy(np.asarray(array).astype(array.dtype.str))
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor


def to_array(tensor: torch.Tensor) -> Array:
    """Return a NumPy copy of ``tensor``; bfloat16 becomes ``ml_dtypes.bfloat16``.

    Raises ``GateError`` of kind ``unverified`` for tensors that ONNX has no dense form of.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
        raise codes.OG107.error(
            f"an output is a {tensor.layout} tensor of {tensor.dtype}, which cannot be compared; "
            "return a dense tensor of real numbers"
        )
    try:
        tensor = tensor.detach().cpu().resolve_neg().contiguous()
        if tensor.dtype == torch.bfloat16:
            bits: Array = tensor.view(torch.int16).numpy().copy()
            return bits.view(ml_dtypes.bfloat16)
        return np.array(tensor.numpy(), copy=True)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise codes.OG107.error(
            f"an output is a tensor of {tensor.dtype} on the device {tensor.device}, which NumPy "
            f"cannot hold: {first_line(error)}"
        ) from error
