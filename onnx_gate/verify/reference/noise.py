"""Draws small moves and applies them: the same ones for a seed, whatever threads and machine.

One random byte an element is enough: a move is uniform between -1 and 1 of its amplitude, in 256
steps, and the sum of a few is as good as normal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

# So many elements of an operand show whether it is made of numbers of few bits.
_LOOKED_AT = 64


class Noise:
    """Moves tensors in place, by amplitudes in units in the last place."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Generator(np.random.SFC64([seed, 1]))
        self._sides, self._side = (
            np.random.Generator(np.random.SFC64([seed // 2, 2])),
            1 - seed % 2 * 2,
        )

    def draw(self, like: torch.Tensor, bits: np.random.Generator | None = None) -> torch.Tensor:
        """Return uniform numbers between -1 and 1, laid out as ``like`` is."""
        words = (bits or self._bits).integers(
            0, 2**64 - 1, like.numel() // 8 + 1, dtype=np.uint64, endpoint=True
        )
        bytes_ = torch.from_numpy(words.view(np.int8))[: like.numel()]
        wide = torch.float64 if like.dtype == torch.float64 else torch.float32
        drawn = bytes_.to(wide).add_(0.5).div_(127.5)
        strides = like.stride() if like.is_contiguous() else torch.empty_like(like).stride()
        return drawn.as_strided(like.shape, strides)

    def scale(
        self, tensor: torch.Tensor, units: torch.Tensor | float, keep: torch.Tensor | None
    ) -> None:
        """Move every element by up to ``units`` of its own last place, but those in ``keep``."""
        factor = self.draw(tensor).mul_(units).mul_(unit(tensor)).add_(1)
        tensor.mul_(factor if keep is None else factor.masked_fill_(keep, 1))
        if tensor.dtype == torch.float16:
            # Below the least normal number a unit is what it is there, and sizes no more.
            low = (tensor.abs() < torch.finfo(tensor.dtype).tiny) & (tensor != 0)
            step = self.draw(tensor).mul_(1.5).round_().masked_fill_(~low, 0)
            tensor.add_(step if keep is None else step.masked_fill_(keep, 0), alpha=2.0**-24)

    def push(self, tensor: torch.Tensor, units: float) -> None:
        """Move every element by ``units``, and the other way with the seed that this one's pair is."""
        side = self.draw(tensor, self._sides).sign_().mul_(self._side)
        tensor.mul_(side.mul_(units * unit(tensor)).add_(1))

    def shift(self, tensor: torch.Tensor, amount: torch.Tensor, keep: torch.Tensor | None) -> None:
        """Move every element by up to ``amount`` times the unit of 1."""
        step = self.draw(tensor).mul_(amount).mul_(unit(tensor))
        step.masked_fill_(~torch.isfinite(step), 0)
        tensor.add_(step if keep is None else step.masked_fill_(keep, 0))


def unit(tensor: torch.Tensor) -> float:
    """Return the last place of 1 in the dtype of ``tensor``."""
    return torch.finfo(tensor.dtype).eps


def few_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return which elements have few significant bits, as whole numbers and halves have."""
    steps, limit = {
        torch.float64: (2.0**20, 2.0**31),
        torch.float32: (2.0**8, 2.0**15),
        torch.float16: (1.0, 2.0**11),
    }.get(tensor.dtype, (1.0, 2.0**8))
    scaled = tensor * steps if steps != 1.0 else tensor
    return (scaled == scaled.round()) & (tensor.abs() <= limit)


def may_be_exact(operands: Sequence[torch.Tensor]) -> bool:
    """Return whether every operand has elements of few bits, so that results can be exact."""
    for operand in operands:
        if not operand.numel():
            continue
        extent = 1 + sum((n - 1) * s for n, s in zip(operand.shape, operand.stride(), strict=True))
        step = extent // _LOOKED_AT + 1
        some = operand.as_strided((-(-extent // step),), (step,), operand.storage_offset())
        zero = some == 0
        if not bool(((few_bits(some) & ~zero).any()) | zero.all()):
            return False
    return True


def are_exact(operands: Sequence[torch.Tensor]) -> bool:
    """Return whether all elements of all operands have few bits."""
    return may_be_exact(operands) and all(bool(few_bits(each).all()) for each in operands)
