"""What became of a weight: the one that a file has, beside the one that the module has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from onnx_gate.diagnose.blame.reordered import reordered
from onnx_gate.diagnose.values import is_distinctive
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import to_array

# Weights that were computed anew, folded or moved through float64, differ by no more.
_SAME = 1e-5
# Numbers that are taken for one number.
_RATIO = 1e-4
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def folded(module: nn.Module) -> Iterator[tuple[str, Array, Array]]:
    """Yield weight and bias of convolutions that exporters fold the norm behind them into."""
    with torch.no_grad():
        for name, _, conv, norm in _normed(module):
            one = torch.ones_like(norm.running_var)
            scale = (norm.weight if norm.affine else one) * (norm.running_var + norm.eps).rsqrt()
            bias = (0 if conv.bias is None else conv.bias) - norm.running_mean
            bias = bias * scale + (norm.bias if norm.affine else 0)
            weight = conv.weight * scale.reshape(-1, *[1] * (conv.weight.ndim - 1))
            yield f"{name}.weight", weight.numpy(), bias.numpy()


def _normed(module: nn.Module) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the paths of convolutions and of the norms behind them, and both."""
    for (name, conv), (path, norm) in pairwise(module.named_modules()):
        fits = isinstance(conv, _CONVOLUTIONS) and isinstance(norm, _NORMS)
        if fits and norm.running_var is not None and conv.out_channels == norm.num_features:
            yield name, path, conv, norm


def weights_of(module: nn.Module) -> dict[str, Array]:
    """Return the numbers that a module holds, by name; not those of another layout or of none."""
    return {
        name: to_array(tensor)
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel() > 1
    }


def called(name: str, module: nn.Module) -> str:
    """Return a weight's name, with the others that it has in the module."""
    state = module.state_dict(keep_vars=True)
    own = state.get(name)
    others = [n for n, t in state.items() if n != name and own is not None and t is own]
    return f"{name} (tied: {', '.join(others)})" if others else name


def told_of_weight(stored: Array, right: Array, name: str, module: nn.Module) -> str:
    """Return a sentence on how a file's weight came of the module's ``right``, called ``name``."""
    for path, norm in module.named_modules():
        if isinstance(norm, _NORMS) and (eps := _eps(stored, right, norm)) is not None:
            return (
                f"the norm {path} is folded with eps={eps:.3g} in the file, and has {norm.eps:.3g}"
            )
    norm_behind = next((n for conv, n, _, _ in _normed(module) if f"{conv}.weight" == name), None)
    if norm_behind is not None and _by_channel(stored, right):
        return f"the norm {norm_behind}, which is folded into {name}, is another in the file"
    if right.dtype == np.float64 and np.array_equal(stored, right.astype(np.float32)):
        return f"the weight {name} is rounded to float32 in the file"
    for how, made in _ways(right):
        if _same(stored, made):
            return f"the weight {name} is {how} in the file"
    if stored.min() == stored.max() and right.min() == right.max():
        return f"{name} is {stored.flat[0]:g} everywhere in the file, and {right.flat[0]:g} in the module"
    moved = reordered(stored, right)
    if moved is not None:
        return (
            f"the weight {called(name, module)} is in another order in the file: {moved.sentence()}"
        )
    for other, array in weights_of(module).items() if is_distinctive(stored) else ():
        if other != name and any(_same(stored, turned) for turned in (array, array.T)):
            return f"the file has {other} where {name} belongs"
    factor = ratio(stored, right)
    if factor is not None and f"{factor:.6g}" != "1":
        return f"the weight {name} is {factor:.6g} times the module's in the file"
    tied = called(name, module)
    count = int((~np.isclose(stored, right, rtol=_SAME, atol=1e-7)).sum())
    if count == stored.size:
        return (
            f"the weight {tied} has other values in the file, all of them, as after other training"
        )
    return f"the weight {tied} has other values in the file, {count} of {stored.size}"


def _ways(right: Array) -> list[tuple[str, Array]]:
    tensor = torch.from_numpy(np.array(right))
    made = [("all zeros", np.zeros_like(right)), ("negated", -right)]
    if right.ndim > 1 and right.shape[-1] == right.shape[-2]:
        made.append(("transposed", np.swapaxes(right, -1, -2)))
    if right.dtype.itemsize > 2:
        for dtype in (torch.float16, torch.bfloat16):
            name = str(dtype).removeprefix("torch.")
            made.append((f"rounded to {name}", tensor.to(dtype).to(tensor.dtype).numpy()))
    return made


def _same(a: Array, b: Array) -> bool:
    # Rounding to 16 bits is found by its very values: what is left of it is far below its own step.
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True))


def ratio(stored: Array, right: Array) -> float | None:
    """Return how many times an array is another one, ``None`` where it is no one number of times."""
    with np.errstate(all="ignore"):
        quotients = (stored / right)[right != 0]
    if quotients.size < 2 or not np.isfinite(quotients).all():
        return None
    middle = float(np.median(quotients))
    return middle if np.allclose(quotients, middle, rtol=_RATIO, atol=0) else None


def _by_channel(stored: Array, right: Array) -> bool:
    """Return whether each channel is some number of times the other's, and these are several numbers."""
    if stored.shape != right.shape or stored.ndim < 2 or not right.all():
        return False
    with np.errstate(all="ignore"):
        quotients = (np.asarray(stored, np.float64) / right).reshape(len(stored), -1)
    each = np.median(quotients, axis=1, keepdims=True)
    same = np.allclose(quotients, each, rtol=_RATIO, atol=0)
    return same and not np.allclose(each, each[0], rtol=_RATIO, atol=0)


def _eps(stored: Array, right: Array, norm: Any) -> float | None:
    """Return the eps that a norm was folded with, where nothing else differs."""
    variance = norm.running_var
    if variance is None or right.shape[:1] != tuple(variance.shape) or stored.shape != right.shape:
        return None
    with np.errstate(all="ignore"):
        each = (np.asarray(stored, np.float64) / right).reshape(len(stored), -1)
        quotients = np.nanmedian(each, axis=1)
        if not np.allclose(each, quotients[:, None], rtol=_RATIO, atol=0, equal_nan=True):
            return None
        own = variance.double().numpy()
        found = (own + norm.eps) / quotients**2 - own
    eps = float(np.median(found))
    # A millionth of the variance is what float32 leaves of it.
    near = np.abs(found - eps) <= 1e-2 * abs(eps) + 1e-6 * own
    return (
        eps if np.isfinite(eps) and eps >= 0 and near.all() and abs(eps - norm.eps) > 1e-7 else None
    )
