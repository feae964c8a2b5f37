"""What an operator gives in float64: how much of a difference is rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from onnx_gate.diagnose.trace.trace import Input, OperatorCall, Trace, TracedValue
from onnx_gate.diagnose.values import distance, kind_of
from onnx_gate.graph.session import Value
from onnx_gate.numerics.precision import eps_of
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import to_array, to_tensor
from onnx_gate.verify.reference.float64 import Float64Mode

# A node may be this many times as far from float64 as PyTorch's operator is.
_FACTOR = 10.0


def explained_by_rounding(value: Value, traced: TracedValue, trace: Trace) -> bool:
    """Return whether a value is as near to the operator's result in float64 as PyTorch's is."""
    if not isinstance(value, np.ndarray) or value.shape != traced.array.shape:
        return False
    if kind_of(value) != "f" or kind_of(traced.array) != "f" or traced.call is None:
        return False
    exact = in_float64(traced.call, trace)
    if exact is None or exact.shape != value.shape:
        return False
    own = distance(traced.array, exact)
    return bool(np.isfinite(own)) and distance(value, exact) <= _FACTOR * max(
        own, eps_of(traced.array.dtype)
    )


def in_float64(call: OperatorCall, trace: Trace) -> Array | None:
    """Return what the operator makes of the same inputs in float64, ``None`` where it cannot."""
    try:
        args, kwargs = arguments(call, trace)
        with torch.no_grad(), Float64Mode():
            result = call.function(*args, **kwargs)
        if call.index is not None:
            result = pytree.tree_leaves(result)[call.index]
        return to_array(result) if isinstance(result, torch.Tensor) else None
    except Exception:
        return None


def arguments(call: OperatorCall, trace: Trace) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return an operator's arguments, tensors with memory of their own."""

    def tensor(value: Any) -> Any:
        if isinstance(value, Input):
            return to_tensor(np.asarray(trace[value.number].array))
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    args = pytree.tree_map(tensor, call.args, is_leaf=lambda x: isinstance(x, Input))
    kwargs = pytree.tree_map(tensor, call.kwargs, is_leaf=lambda x: isinstance(x, Input))
    return tuple(args), dict(kwargs)
