"""The module with the rounding of its operators moved: what another implementation could answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.errors import GateError
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.exact import EXACT_ATEN
from onnx_gate.verify.reference.operator_mode import OperatorMode

_NORMALISATIONS = frozenset(
    {"native_batch_norm", "_native_batch_norm_legit", "native_group_norm", "native_layer_norm"}
)
_REDUCTIONS = frozenset(
    {
        *("mean", "sum", "cumsum", "logcumsumexp", "logsumexp", "norm", "linalg_vector_norm"),
        *("var", "var_mean", "std", "std_mean", "avg_pool2d", "avg_pool3d"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    }
)
# Of these the result is itself the sum of the terms (or their mean), signs and all.
_SIGNED_SUMS = frozenset({"mean", "sum", "cumsum"})
_TAILS = frozenset({"sigmoid", "tanh", "erf"})
# Gaussian elimination is backward stable: what it computes is exact for a matrix that is off by some
# units in the last place of its largest elements (Higham, Accuracy and Stability, chapter 9).
_ELIMINATIONS = frozenset(
    {
        *("_linalg_det", "_linalg_slogdet", "linalg_inv_ex", "_linalg_solve_ex"),
        *("linalg_lu_factor_ex", "linalg_cholesky_ex"),
    }
)
# Vector lanes that add side by side: a sum of n terms is chains of n / 8.
_LANES = 8
# The standard deviation of one rounded addition, in units of eps times the partial sum: a uniform
# error of half a unit has 0.29 of a unit, and a mantissa between 1 and 2 makes it three quarters.
_ADDITION = 0.22
# So many terms show whether they are a few numbers again and again; 4,096 that are not are a
# thousandth of their spread apart, and equal ones some units in the last place.
_LOOKED_AT = 4096
_FINE = frozenset({torch.float32, torch.float64})


class MovedRounding(OperatorMode):
    """Move every rounded result of every operator by what another implementation may round it to.

    The idea is Monte Carlo arithmetic (Parker 1997) at the granularity of operators: what comes
    out is what another correct implementation of the same model could have computed. The
    invariant: an operator whose result is exact (it moves, selects or compares values, or its
    result has few significant bits, as whole numbers have) is never moved; those are positions
    and sizes, which are the same everywhere. The inputs are exact, too.

    By how much:

    - every other result by one unit in its last place, up or down or not at all;
    - sums of n terms by what adding them one after the other loses: the error of n additions
      walks to sqrt(n) times that of one, which is of the size of the partial sums. Terms that
      are a few numbers again and again round in one direction each time, and lose n / 8 units
      (ONNX Runtime's InstanceNormalization over n equal numbers is off by n / 64 units of the
      mean, measured);
    - what eliminates by solving for a matrix that is a unit of its largest element off: a determinant
      of almost nothing loses all its digits;
    - sigmoid, tanh and erf by a unit of 1: their approximations are that good, and not relatively
      better far out.

    The cost is one pass over each result beside the operator itself.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator and move its floating-point results."""
        if name in _ELIMINATIONS:
            args = pytree.tree_map(self._off_by_a_unit, args)
        result = func(*args, **kwargs)
        returns = func._schema.returns
        if name in EXACT_ATEN or any(
            r.alias_info is not None and not r.alias_info.is_write for r in returns
        ):
            return result
        if name in _REDUCTIONS:
            self.move_reduction(name, args, result)
            return result
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.move(leaf)
        if name in _NORMALISATIONS:
            self._move_normalised(name, args, result)
        elif name in _TAILS:
            self._move_tail(result)
        return result

    def _off_by_a_unit(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.ndim < 2 or not value.is_floating_point():
            return value
        if not value.numel():
            return value
        unit = torch.finfo(value.dtype).eps * value.abs().amax(dim=(-2, -1), keepdim=True)
        return value + unit * self._signs(value)

    def _signs(self, like: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, like.shape, generator=self._generator) * 2 - 1
        return signs.to(like.dtype)

    def move_reduction(self, name: str, args: Any, result: Any) -> None:
        """Move sums by what adding their terms one after the other can lose."""
        x = args[0]
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
            return
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
        alike = _alike(x)
        for leaf in pytree.tree_leaves(result):
            if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
                continue
            if not leaf.numel():
                continue
            keep = _few_bits(leaf) & _few_bits(x).all()
            before = leaf.clone()
            self.move(leaf)
            if name == "cumsum" and x.ndim:
                # Every partial sum carries the errors of all before it.
                steps = torch.randn(leaf.shape, generator=self._generator).to(leaf.dtype)
                lost = (steps * (2 * _ADDITION * eps) * before.abs()).cumsum(args[1])
                if alike:
                    lost = lost + self._signs(
                        lost.new_ones(())
                    ) * eps / _LANES * before.abs().cumsum(args[1])
                leaf.copy_(torch.where(keep | ~torch.isfinite(lost), before, leaf + lost))
                continue
            count = x.numel() / leaf.numel()
            walk = _ADDITION * count**0.5
            if alike:
                walk = max(walk, count / _LANES)
            size = before.abs().to(torch.float32 if eps > 1e-10 else torch.float64)
            if name in _SIGNED_SUMS:
                # Partial sums of terms of both signs are larger than what they end at.
                terms = x.detach().abs().to(size.dtype)
                terms = terms.clamp(max=float(torch.finfo(size.dtype).max) ** 0.5)
                typical = float(terms.square().mean().sqrt())
                share = count**-0.5 if name == "mean" else count**0.5
                size = size.clamp(min=typical * share)
            lost = (self._signs(size) * walk * eps * size).to(leaf.dtype)
            leaf.copy_(torch.where(keep | ~torch.isfinite(lost), before, leaf + lost))

    def _move_tail(self, output: torch.Tensor) -> None:
        """Move functions bounded by 1 by a unit of 1: approximations of them are no better.

        Far out, where they are next to nothing, that is a large part of them, and a logarithm or
        a quotient behind them shows it. (A ``logsigmoid`` is no sigmoid: who computes it as the
        logarithm of one loses what the operator is there to keep.)
        """
        sign = torch.randint(-1, 2, output.shape, generator=self._generator)
        shift = torch.finfo(output.dtype).eps * sign.to(output.dtype)
        output.copy_(torch.where(_few_bits(output), output, output + shift))

    def _move_normalised(self, name: str, args: Any, result: Any) -> None:
        """Move the mean and the standard deviation that a normalisation has used.

        Both are sums. Dividing by a standard deviation of nearly zero, as inputs that are all
        alike have, makes an error of the mean large.
        """
        output, mean, rstd = result[0], result[1], result[2]
        # aten::native_layer_norm(input, normalized_shape, weight, ...); the others have no shape.
        x, weight = args[0], args[2 if name == "native_layer_norm" else 1]
        if mean.numel() == 0 or output.numel() == 0:
            return
        count = output.numel() / mean.numel()
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
        lost = eps * (count / _LANES if _alike(x) else _ADDITION * (count / _LANES) ** 0.5)
        sign = self._signs(mean)
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


def _alike(x: torch.Tensor) -> bool:
    """Return whether most terms in ``x`` are a few numbers again and again, as in ones and ties.

    Equal terms round in one direction each, as long as a sum stays within a power of two. Adding
    zero rounds nothing. Numbers of 16 bits are few by nature: of those only neighbours are looked at.
    """
    flat = x.detach().reshape(-1)
    flat = flat[:: flat.numel() // _LOOKED_AT + 1] if x.dtype in _FINE else flat
    flat = flat[flat != 0]
    if flat.numel() < 2:
        return False
    if x.dtype in _FINE:
        flat = flat.sort().values
    # The operators before have moved each of them by a unit or two.
    near = 8 * torch.finfo(x.dtype).eps * flat[1:].abs()
    return bool(((flat[1:] - flat[:-1]).abs() <= near).to(torch.float32).mean() > 0.5)


def _few_bits(tensor: torch.Tensor) -> torch.Tensor:
    steps, limit = {
        torch.float64: (2.0**20, 2.0**31),
        torch.float32: (2.0**8, 2.0**15),
        torch.float16: (1.0, 2.0**11),
    }.get(tensor.dtype, (1.0, 2.0**8))
    scaled = tensor * steps if steps != 1.0 else tensor
    return (scaled == scaled.round()) & (tensor.abs() <= limit)


def run_moved(eager: Eager, inputs: Mapping[str, Array], seed: int) -> tuple[Array, ...] | None:
    """Return the outputs of one run of the module in its own precision under ``MovedRounding``."""
    try:
        return eager.run(inputs, mode=MovedRounding(seed)).arrays
    except (Refusal, GateError):
        return None
