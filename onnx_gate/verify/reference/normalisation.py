"""What normalisations lose: the mean and the standard deviation that they divide by are sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from onnx_gate.verify.reference.chains import in_lanes, walk
from onnx_gate.verify.reference.equal import EQUAL, alike
from onnx_gate.verify.reference.noise import Mover, unit
from onnx_gate.verify.reference.rounding import RESULT, TERM

NORMALISATIONS = frozenset(
    {"native_batch_norm", "_native_batch_norm_legit", "native_group_norm", "native_layer_norm"}
)

# PyTorch's kernels begin with a new mean after so many additions (kChunkSize of aten's moments_utils.h),
# and join the means pairwise.
_CHUNK = 16


def move_normalised(noise: Mover, name: str, given: Mapping[str, Any], result: Any) -> None:
    """Move the mean and the standard deviation that a normalisation has used.

    Dividing by a standard deviation of nearly zero, as inputs that are all alike have, makes an
    error of the mean large.
    """
    output, mean, rstd = result[0], result[1], result[2]
    x, weight, bias = given["input"], given["weight"], given["bias"]
    count = output.numel() / mean.numel()
    chain = in_lanes(count)
    steps = walk(chain)
    layer = name == "native_layer_norm"
    # As rows of what each statistic is of.
    groups = (
        x
        if layer
        else x.reshape(mean.shape[0] if mean.ndim > 1 else 1, mean.shape[-1], -1)
        if name == "native_group_norm"
        else x.transpose(0, 1).reshape(mean.shape[-1], -1)
    )
    rows = groups.reshape(mean.numel(), -1) if name != "native_batch_norm" else groups
    walks = torch.full((mean.numel(),), RESULT * steps, dtype=mean.dtype)
    walks = torch.maximum(EQUAL * chain * alike(rows), walks).reshape(mean.shape)
    variance = (rstd.square().reciprocal()).clamp(max=torch.finfo(rstd.dtype).max)
    eps = min(unit(mean), torch.finfo(torch.float32).eps)  # in 32 bits where the result has 16
    lost = walks * mean.abs() + TERM * steps * (variance / count).sqrt()
    shift = noise.draw(mean) * lost * eps * rstd
    # A running mean is rounded at its own size at every step, and each deviation from it is off by
    # that: so is their sum of squares, by |mean| / std of it (Chan, Golub and LeVeque, The American
    # Statistician 37, 1983, of what they call updating).
    off = walk(min(count, _CHUNK)) * mean.abs() * rstd / count**0.5
    spread = eps * (0.5 * walks + off) * noise.draw(mean)
    if rstd.dtype == torch.float64:
        spread = spread + _narrowed(noise, given) * rstd.square()
    if layer:
        if weight is not None:
            shift = shift * weight
    else:
        repeats = x.shape[1] // mean.shape[-1]
        shift, spread = (
            t.reshape(-1, mean.shape[-1]).repeat_interleave(repeats, dim=1) for t in (shift, spread)
        )
        if weight is not None:
            shift = shift * weight.reshape(1, -1)
        shift, spread = (t.reshape(*t.shape, *([1] * (x.ndim - 2))) for t in (shift, spread))
    if bias is not None:
        bias = bias if layer else bias.reshape(1, -1, *([1] * (x.ndim - 2)))
        shift = shift - bias * spread
    output.add_((output * spread.clamp(-1, 1) + shift).to(output.dtype))


def move_by_statistics(noise: Mover, given: Mapping[str, Any], output: torch.Tensor) -> None:
    """Move what was normalised, in float64, by statistics that are given: their epsilon is narrower."""
    variance, bias = given["running_var"], given["bias"]
    spread = _narrowed(noise, given) / (variance + given["eps"])
    channels = (-1, *([1] * (output.ndim - 2)))
    from_mean = output if bias is None else output - bias.view(channels)
    output.add_(from_mean * spread.view(channels))


def _narrowed(noise: Mover, given: Mapping[str, Any]) -> torch.Tensor:
    """Return what the epsilon that ONNX keeps, in 32 bits, makes of a result with a variance of 1.

    It is the same everywhere, on either side in each run.
    """
    eps: float = given["eps"]
    off = torch.tensor(eps, dtype=torch.float32).item() - eps
    return 0.5 * off * noise.draw(torch.zeros(1, dtype=torch.float64)).sign()
