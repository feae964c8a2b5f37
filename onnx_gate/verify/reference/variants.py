"""The other answers that PyTorch could give: what it leaves open, recognised where it happens.

On some inputs PyTorch has more than one answer, and a graph that gives another of them is not
wrong. Each cause is seen by watching the operators of the module while it runs, and never
guessed from an input's shape or name. A *variant* is one more run of the module in which one
cause was decided the other way. Where no operator had anything to decide there is no variant.

=========================  ====================================================================
cause                      what is done the other way
=========================  ====================================================================
attention over nothing     a row of a softmax, or of scaled-dot-product attention, whose keys
                           are all masked (-inf, or at or below half the dtype's minimum) is 0,
                           the mean over the keys, or NaN (0/0) where they are -inf and the
                           other two differ
attention's fast path      the layers' own code instead of the fused kernel, and the above in it
order of equals            topk, unstable sort, kthvalue, median and mode take the first, or the
                           last, of equal values
=========================  ====================================================================

Rounding, the fourth cause, is in ``perturb``, and what it does to most elements is told by some runs.
One behind a decision (a floor, the cut of an angle, a pole) it moves by a jump or not at all: what one
run of sixteen would make otherwise is as it was in all sixteen one time in three. A candidate may be K
times as wrong as PyTorch, so a decision is open where K times its rounding makes it otherwise. One about
equals hangs on numbers that come together, which no run that moves each of them shows; others do.

A variant costs some forward passes, and none is made unless a check would otherwise diverge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from onnx_gate.errors import GateError
from onnx_gate.numerics.precision import masked_at
from onnx_gate.report.model import OpenCause
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.answers import WIDE, holds
from onnx_gate.verify.reference.decided import Decided
from onnx_gate.verify.reference.models import ATTENTION, FAST_PATH, QUANTISERS
from onnx_gate.verify.reference.operator_mode import OperatorMode, given_to
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.reference.poles import Crossed, Poles

_SOFTMAX = frozenset({"_softmax", "_safe_softmax", "softmax"})
# Runs of a variant with moved rounding: another answer has a noise of its own.
_RUNS = 8
# As many as there are of others: six of them miss a decision of a third one time in eleven, and rows
# have one each.
_WIDE_RUNS = 16
# Two pairs of runs that join what is near: a row of decisions has to be joined in one of them whole.
_JOINED_RUNS = 4
# Operators whose result jumps: a comparison, a choice, a step, or the cut of an angle.
_JUMPS = frozenset(
    {
        *("floor", "ceil", "round", "trunc", "frac", "sign", "sgn", "signbit", "heaviside"),
        *("floor_divide", "remainder", "fmod", "atan2", "angle", "searchsorted", "bucketize"),
        *("gt", "ge", "lt", "le", "eq", "ne", "argmax", "argmin", "max", "min", "sort", "topk"),
        *("kthvalue", "median", "nanmedian", "mode", "argsort", "nonzero", "_local_scalar_dense"),
        *("grid_sampler_2d", "grid_sampler_3d", *QUANTISERS),
    }
)
# Operators that hold what is beyond a limit at it. What rounding alone has carried there is behind a jump
# for what comes after: the root of a distance to itself.
_HOLDS = frozenset(
    {
        *("clamp", "clamp_min", "clamp_max", "maximum", "minimum"),
        *("relu", "hardtanh", "threshold"),
    }
)
# As many units of the largest number: what a difference of two sums of it loses.
_CARRIED = 8
_EQUALS = frozenset({"sort", "topk", "kthvalue", "median", "nanmedian", "mode"})


@dataclass(frozen=True)
class Variant:
    """One run in which ``cause`` was decided the other way.

    ``arrays`` are all outputs, ``moved`` those of the same run with rounding moved. Of one that rounding
    has decided they are moved, and what is decided so with nothing moved comes after them; ``held`` where
    what was carried beyond an end is at it.
    """

    cause: OpenCause
    arrays: tuple[Array, ...]
    moved: tuple[tuple[Array, ...], ...] = ()
    held: bool = False


class _Watch(OperatorMode):
    """A mode that knows whether it had anything to decide."""

    def __init__(self) -> None:
        super().__init__()
        self.decided = False


class FastPath(_Watch):
    """Sees whether attention took the fused kernel that has rules of its own."""

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Look at the name only."""
        self.decided |= name in FAST_PATH
        return func(*args, **kwargs)


class Jumps(_Watch):
    """Sees whether floating-point numbers decide anything: a jump, or a conversion to whole numbers."""

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Look at the name, what it is given and what becomes of it."""
        holds = name.rstrip("_") in _HOLDS and isinstance(args[0], torch.Tensor) and args[0].numel()
        before = args[0].clone() if holds and args[0].is_floating_point() else None
        result = func(*args, **kwargs)
        if before is not None and before.shape == result.shape:
            apart = (before - result).abs()
            few = _CARRIED * torch.finfo(before.dtype).eps * before.abs().max()
            self.decided |= bool(((apart > 0) & (apart <= few)).any())
        if args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            whole = isinstance(result, torch.Tensor) and not result.is_floating_point()
            self.decided |= name in _JUMPS or bool(kwargs.get("rounding_mode"))
            self.decided |= name in ("_to_copy", "to") and whole
        return result


class MaskedAttention(_Watch):
    """Attention over nothing is ``fill``, or the mean over the keys where that is ``None``."""

    def __init__(self, *, fill: float | None) -> None:
        super().__init__()
        self._fill = fill

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Put the other answer in place of rows whose keys are all masked."""
        result = func(*args, **kwargs)
        if name in _SOFTMAX:
            self._softmax(func, args, kwargs, result)
        elif name in ATTENTION:
            self._attention(func, args, kwargs, result)
        return result

    def _softmax(self, func: Any, args: Any, kwargs: dict[str, Any], result: torch.Tensor) -> None:
        scores, dim = args[0], given_to(func, args, kwargs)["dim"]
        if not scores.ndim or not scores.is_floating_point() or not scores.shape[dim]:
            return
        nothing = (scores <= self._limit(scores.dtype)).all(dim=dim, keepdim=True)
        if nothing.any():
            self.decided = True
            share = 1.0 / scores.shape[dim] if self._fill is None else self._fill
            result.copy_(torch.where(nothing, torch.full_like(result, share), result))

    def _attention(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        given = given_to(func, args, kwargs)
        query, key, value = args[0], args[1], args[2]
        mask = given.get("attn_mask", given.get("attn_bias"))
        if mask is None or not key.shape[-2]:
            return
        seen = mask if mask.dtype == torch.bool else mask > self._limit(mask.dtype)
        shape = (query.shape[-2], key.shape[-2])
        seen = seen.expand(*seen.shape[:-2], *shape) if seen.ndim >= 2 else seen.expand(shape)
        if given.get("is_causal"):
            seen = seen & torch.ones(shape, dtype=torch.bool).tril()
        nothing = ~seen.any(dim=-1, keepdim=True)
        if nothing.any():
            self.decided = True
            output = result[0] if isinstance(result, tuple) else result
            other = torch.full_like(output, self._fill or 0.0)
            if self._fill is None:
                mean = value.mean(dim=-2, keepdim=True)
                if mean.ndim > 2 and mean.shape[-3] != output.shape[-3]:  # grouped queries
                    mean = mean.repeat_interleave(output.shape[-3] // mean.shape[-3], dim=-3)
                other = mean.expand_as(output)
            output.copy_(torch.where(nothing, other, output))

    def _limit(self, dtype: torch.dtype) -> float:
        """Return the score at or below which a key is masked; only a row of -inf is 0/0."""
        nan = self._fill is not None and math.isnan(self._fill)
        return -math.inf if nan else masked_at(torch.finfo(dtype).min)


class OrderOfEquals(_Watch):
    """Of equal values the first is taken, or the last, where PyTorch promises neither."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        self._first = first

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Choose among equals."""
        result = func(*args, **kwargs)
        if name not in _EQUALS or not isinstance(result, tuple) or len(result) != 2:
            return result
        values, indices = result
        given = given_to(func, args, kwargs)
        source = args[0]
        if given.get("stable") or not source.ndim or not source.numel():
            return result
        dim = given.get("dim", -1)
        if name in ("sort", "topk"):
            descending = bool(given.get("descending", given.get("largest", False)))
            other = self._order(source, dim, descending).narrow(dim, 0, indices.shape[dim])
        else:
            keep = bool(given.get("keepdim"))
            wanted = values if keep else values.unsqueeze(dim)
            equal = (source == wanted) | (source.isnan() & wanted.isnan())
            other = self._end(equal.to(torch.int8), dim, keep)
        # Unsorted results of topk keep their own order of values.
        same = (
            torch.equal(torch.gather(source, dim, other), values)
            if other.ndim == values.ndim
            else True
        )
        if same and not torch.equal(other, indices):
            self.decided = True
            indices.copy_(other)
        return result

    def _order(self, source: torch.Tensor, dim: int, descending: bool) -> torch.Tensor:
        if self._first:
            return torch.sort(source, stable=True, dim=dim, descending=descending).indices
        flipped = torch.sort(source.flip(dim), stable=True, dim=dim, descending=descending).indices
        return source.shape[dim] - 1 - flipped

    def _end(self, equal: torch.Tensor, dim: int, keep: bool) -> torch.Tensor:
        if self._first:
            return equal.argmax(dim=dim, keepdim=keep)
        return equal.shape[dim] - 1 - equal.flip(dim).argmax(dim=dim, keepdim=keep)


def variants(eager: Eager, inputs: Mapping[str, Array]) -> Iterator[Variant]:
    """Yield PyTorch's other answers on ``inputs``, those that are open for a reason."""
    slow = eager.without_fast_path()
    watch = FastPath()
    if slow is not None and _run(eager, inputs, watch) is not None and watch.decided:
        yield from _variant("attention's fast path", slow, inputs, None)
        yield from _over_nothing(slow, inputs)
    yield from _over_nothing(eager, inputs)
    for first in (True, False):
        order = partial(OrderOfEquals, first=first)
        yield from _variant("order of equals", eager, inputs, order)
    jumps, poles = Jumps(), Poles()
    decided = _run(eager, inputs, jumps) is not None and jumps.decided
    decided |= _run(eager, inputs, poles) is not None and bool(poles.seen)
    # Those that hold tell the others what they have at an end. Of those that join, ONNX takes the first of
    # equals.
    seeds = (
        *((seed, False) for seed in sorted(range(_WIDE_RUNS), key=holds, reverse=True)),
        *((s, True) for s in range(_JOINED_RUNS)),
    )
    for seed, joins in seeds if decided else ():
        kept, mode = (
            Decided(),
            OrderOfEquals(first=True) if joins else Crossed(poles, held=holds(seed)),
        )
        arrays = _run(eager, inputs, mode, MovedRounding(seed, WIDE, joins=joins, decided=kept))
        if arrays is not None:
            still = MovedRounding(seed, times=0.0, decided=kept.followed())
            own = _run(eager, inputs, mode if joins else None, still)
            yield Variant("rounding", arrays, _alike(arrays, [own]), holds(seed))


def _over_nothing(eager: Eager, inputs: Mapping[str, Array]) -> Iterator[Variant]:
    """Yield the other answers to attention over nothing.

    NaN is one where the finite answers differ, which is where something hangs on the row. What does
    not (valid positions, to which it is a key of no weight; a mean that leaves it out) has one answer
    whatever is there, and a file's NaN has spread to it.
    """
    finite: list[Variant] = []
    for fill in (0.0, None):
        finite += _variant(
            "attention over nothing", eager, inputs, partial(MaskedAttention, fill=fill)
        )
    yield from finite
    if len(finite) < 2:
        return
    zero, mean = finite
    make = partial(MaskedAttention, fill=math.nan)
    for nan in _variant("attention over nothing", eager, inputs, make):
        settled = [a == b for a, b in zip(zero.arrays, mean.arrays, strict=True)]
        runs = zip((nan.arrays, *nan.moved), (zero.arrays, *zero.moved), strict=False)
        arrays, *moved = (
            tuple(np.where(*each) for each in zip(settled, of_zero, of_nan, strict=True))
            for of_nan, of_zero in runs
        )
        yield Variant(nan.cause, arrays, tuple(moved))


def _variant(
    cause: OpenCause, eager: Eager, inputs: Mapping[str, Array], make: Callable[[], _Watch] | None
) -> Iterator[Variant]:
    mode = make() if make else None
    arrays = _run(eager, inputs, mode)
    if arrays is None or (mode is not None and not mode.decided):
        return
    runs = map(MovedRounding, range(_RUNS))
    moved = (_run(eager, inputs, make() if make else None, each) for each in runs)
    yield Variant(cause, arrays, _alike(arrays, moved))


def _alike(
    arrays: tuple[Array, ...], runs: Iterable[tuple[Array, ...] | None]
) -> tuple[tuple[Array, ...], ...]:
    """Return the runs whose outputs have the shapes of ``arrays``."""
    like = [a.shape for a in arrays]
    return tuple(run for run in runs if run and [a.shape for a in run] == like)


def _run(
    eager: Eager,
    inputs: Mapping[str, Array],
    mode: OperatorMode | None,
    moved: MovedRounding | None = None,
) -> tuple[Array, ...] | None:
    """Run the module under a mode, and with its rounding ``moved``."""
    try:
        with moved or nullcontext():
            return eager.run(inputs, mode=mode).arrays
    except (Refusal, GateError):
        return None
