"""The module with the rounding of its operators moved: what another implementation could answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from onnx_gate.errors import GateError
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor

# Operators that only move, select or compare values: they do not round, so nothing is moved there.
_EXACT = frozenset(
    [
        "abs",
        "alias",
        "alias_copy",
        "amax",
        "amin",
        "aminmax",
        "as_strided",
        "bucketize",
        "cat",
        "ceil",
        "clamp",
        "clamp_max",
        "clamp_min",
        "clone",
        "constant_pad_nd",
        "contiguous",
        "copy",
        "copy_",
        "cummax",
        "cummin",
        "detach",
        "diagonal",
        "embedding",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "eye",
        "fill",
        "fill_",
        "flip",
        "floor",
        "frac",
        "full",
        "full_like",
        "fmod",
        "gather",
        "hardtanh",
        "index",
        "index_put",
        "index_put_",
        "index_select",
        "isnan",
        "leaky_relu",
        "lift",
        "lift_fresh",
        "lift_fresh_copy",
        "masked_fill",
        "masked_fill_",
        "masked_scatter",
        "max",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "maximum",
        "min",
        "minimum",
        "native_dropout",
        "neg",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "nonzero",
        "ones",
        "ones_like",
        "permute",
        "pixel_shuffle",
        "pixel_unshuffle",
        "put",
        "reflection_pad1d",
        "reflection_pad2d",
        "reflection_pad3d",
        "relu",
        "relu_",
        "repeat",
        "replication_pad1d",
        "replication_pad2d",
        "replication_pad3d",
        "roll",
        "round",
        "scalar_tensor",
        "scatter",
        "scatter_",
        "select",
        "select_scatter",
        "sign",
        "slice",
        "slice_scatter",
        "sort",
        "split",
        "split_with_sizes",
        "squeeze",
        "stack",
        "take",
        "threshold",
        "topk",
        "transpose",
        "tril",
        "triu",
        "trunc",
        "unbind",
        "unfold",
        "unsqueeze",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "view",
        "where",
        "zero_",
        "zeros",
        "zeros_like",
        "_adaptive_max_pool2d",
        "arange",
        "_to_copy",
        "_unsafe_view",
        "_reshape_alias",
        "_reshape_copy",
        "mode",
        "median",
        "kthvalue",
    ]
)


_NORMALISATIONS = frozenset(
    {"native_batch_norm", "_native_batch_norm_legit", "native_group_norm", "native_layer_norm"}
)
_REDUCTIONS = frozenset(
    {
        *("mean", "sum", "var", "var_mean", "std", "std_mean", "norm", "linalg_vector_norm"),
        *(
            "cumsum",
            "logsumexp",
            "avg_pool2d",
            "avg_pool3d",
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool3d",
        ),
    }
)
_SUMS = frozenset({"mean", "sum", "cumsum"})
_TAILS = frozenset({"sigmoid", "tanh", "erf", "log_sigmoid_forward"})
_LANES = 8
_PARTIAL = 16


class MovedRounding(TorchDispatchMode):
    """Move every rounded result of every operator by at most one unit in the last place.

    What comes out is what another correct implementation of the same model could have computed
    (Monte Carlo arithmetic, Parker 1997, at the granularity of operators). Values with few
    significant bits, such as whole numbers, are left alone: they are results of exact arithmetic
    on sizes and positions more often than of rounding.

    ``repetitive`` says that the inputs hold few different numbers, as zeros, ones and ties do.
    Adding n equal numbers in sequence rounds in one direction every time: the mean is off by n/64
    units in ONNX Runtime's InstanceNormalization (docs/tolerances.md). Sums, means and
    normalisations are then moved by n/8 units.
    """

    def __init__(self, seed: int, repetitive: bool = False) -> None:
        super().__init__()
        self._repetitive = repetitive
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        """Run the operator and move its floating-point results."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1]
        returns = func._schema.returns
        if name in _EXACT or any(
            r.alias_info is not None and not r.alias_info.is_write for r in returns
        ):
            return result
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.move(leaf)
        if name in _NORMALISATIONS:
            if self._repetitive:
                self._move_normalised(name, args, result)
        elif name in _REDUCTIONS:
            self._move_reduction(name, args, result)
        elif name in _TAILS:
            self._move_tail(name, args, result)
        return result

    def _move_reduction(self, name: str, args: Any, result: Any) -> None:
        """Move sums by what adding their terms one after the other can lose.

        The partial sums of n terms grow to sqrt(n) times a term, and each of them is rounded.
        """
        x = args[0]
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
                count = (
                    x.shape[args[1]] if name == "cumsum" and x.ndim else x.numel() / leaf.numel()
                )
                sign = torch.randint(0, 2, leaf.shape, generator=self._generator) * 2 - 1
                if self._repetitive:
                    leaf.mul_((1 + sign * _lost(count)).to(leaf.dtype))
                if name in _SUMS and x.is_floating_point():
                    term = float(x.to(torch.float32).square().mean().sqrt())
                    share = 1.0 if name == "mean" else float(count)
                    lost = torch.finfo(torch.float32).eps / _PARTIAL * share * term
                    leaf.add_((sign * lost).to(leaf.dtype))

    def _move_tail(self, name: str, args: Any, result: Any) -> None:
        """Move functions bounded by 1 by a unit of 1: approximations of them are no better.

        Far out, where they are next to nothing, that is a large part of them, and a logarithm or
        a quotient behind them shows it.
        """
        output = result[0] if isinstance(result, tuple) else result
        sign = torch.randint(-1, 2, output.shape, generator=self._generator)
        shift = torch.finfo(output.dtype).eps * sign.to(output.dtype)
        if name == "log_sigmoid_forward":
            shift = shift / torch.sigmoid(args[0])
        output.copy_(torch.where(_few_bits(output), output, output + shift))

    def _move_normalised(self, name: str, args: Any, result: Any) -> None:
        """Move the mean and the standard deviation that a normalisation has used.

        Both are sums. Dividing by a standard deviation of nearly zero, as constant inputs have,
        makes an error of the mean large.
        """
        output, mean, rstd = result[0], result[1], result[2]
        x, weight = args[0], args[1]
        if mean.numel() == 0 or output.numel() == 0:
            return
        lost = _lost(output.numel() / mean.numel())
        sign = torch.randint(0, 2, mean.shape, generator=self._generator) * 2 - 1
        shift = (mean.abs() * rstd) * sign * lost
        scale = 1 + sign * lost
        if name == "native_layer_norm":
            shift = shift if weight is None else shift * weight
        else:
            repeats = x.shape[1] // mean.shape[-1]
            shift, scale = (
                t.reshape(-1, mean.shape[-1]).repeat_interleave(repeats, dim=1)
                for t in (shift, scale)
            )
            if weight is not None:
                shift = shift * weight.reshape(1, -1)
            shift, scale = (t.reshape(*t.shape, *([1] * (x.ndim - 2))) for t in (shift, scale))
        output.mul_(scale.to(output.dtype)).add_(shift.to(output.dtype))

    def move(self, tensor: torch.Tensor) -> None:
        """Move the elements of ``tensor`` in place."""
        if tensor.numel() == 0 or tensor.layout != torch.strided:
            return
        eps = torch.finfo(tensor.dtype).eps
        sign = torch.randint(-1, 2, tensor.shape, generator=self._generator, dtype=torch.int8).to(
            torch.float64 if tensor.dtype == torch.float64 else torch.float32
        )
        moved = tensor.to(sign.dtype) * (1 + eps * sign)
        keep = _few_bits(tensor)
        tensor.copy_(torch.where(keep, tensor, moved.to(tensor.dtype)))


def _lost(count: float) -> float:
    """Return the relative error of a sum of ``count`` equal numbers; sums are made in float32."""
    return count / _LANES * torch.finfo(torch.float32).eps


def _few_bits(tensor: torch.Tensor) -> torch.Tensor:
    steps, limit = {
        torch.float64: (2.0**20, 2.0**31),
        torch.float32: (2.0**8, 2.0**15),
        torch.float16: (1.0, 2.0**11),
    }.get(tensor.dtype, (1.0, 2.0**8))
    scaled = tensor * steps if steps != 1.0 else tensor
    return (scaled == scaled.round()) & (tensor.abs() <= limit)


def jittered(
    eager: Eager, inputs: Mapping[str, Array], seed: int, repetitive: bool = False
) -> tuple[Array, ...] | None:
    """Return the outputs of one run of the module in its own precision under ``MovedRounding``."""
    mode = MovedRounding(seed, repetitive)
    tensors = {name: to_tensor(array) for name, array in inputs.items()}
    for tensor in tensors.values():
        if tensor.is_floating_point():
            mode.move(tensor)
    try:
        _, outputs = eager.run_prepared(tensors, mode=mode)
        return tuple(to_array(tensor) for tensor in outputs)
    except (Refusal, GateError):
        return None
