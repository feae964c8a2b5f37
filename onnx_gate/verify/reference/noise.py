"""Draws small moves and applies them: the same ones for a seed, whatever threads and machine.

A move is uniform between -1 and 1 of its amplitude. Two pairs of seeds in turn are of two kinds, as
correct implementations are of both:

- It follows from the element's *place*: a kernel adds in lanes, and does the last elements of a row
  otherwise than the rest, so that equals part. One random byte an element is enough, as the sum of a
  few is as good as normal. All are drawn once, and each tensor is moved by windows of them that
  begin anywhere, of either sign: to choose those is all that a seed does.
- It follows from the element's *value*, and those that it is made of: the same operation makes the
  same of the same numbers, so that equals stay equal, and a sum over what is sorted does not lean to
  one side by what it was sorted by. It is a hash of their bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from random import Random

import numpy as np
import torch

from onnx_gate.verify.reference.answers import holds

# So many elements of an operand show whether it is made of numbers of few bits.
_LOOKED_AT = 64
# Moves in a window, at most; it begins at one of as many places.
_WINDOW = 1 << 17
# All bits of a float32 but its sign: rounding is the same on both sides of zero.
_UNSIGNED = 0x7FFFFFFF
# An odd number without a pattern in its bits: the first of Wellons' lowbias32, a hash of 32 bits.
_ODD = 0x7FEB352D


@cache
def _moves() -> torch.Tensor:
    """Return twice as many moves as a window has, and in a second row the same of the other sign."""
    bytes_ = np.random.Generator(np.random.SFC64(1)).bytes(2 * _WINDOW)
    drawn = torch.from_numpy(np.frombuffer(bytes_, np.int8).astype(np.float32))
    drawn = drawn.add_(0.5).div_(127.5)
    return torch.stack([drawn, -drawn])


class Mover:
    """Moves tensors in place, by amplitudes in units in the last place, and ``times`` that."""

    def __init__(self, seed: int, times: float = 1.0) -> None:
        self._times, self._by_value = times, seed // 2 % 2 == 1
        self._places, self._sides = Random(2 * seed), Random(seed // 2 * 2 + 1)
        self._side = 1 - seed % 2 * 2
        self.holds = holds(seed)
        self._operands: Sequence[torch.Tensor] = ()

    def made_of(self, operands: Sequence[torch.Tensor]) -> Mover:
        """Return the same for results that are made of ``operands``, element by element."""
        # What ``copy`` does takes longer than most small tensors are moved in.
        made = object.__new__(type(self))
        vars(made).update(vars(self), _operands=operands)
        return made

    def draw(self, like: torch.Tensor, places: Random | None = None) -> torch.Tensor:
        """Return uniform numbers between -1 and 1, laid out as ``like`` is; they are not to be written."""
        windows = list(self._windows(like, places or self._places))
        drawn = windows[0] if len(windows) == 1 else torch.cat(windows)
        if self._by_value:
            return drawn.view(like.shape)
        strides = like.stride() if like.is_contiguous() else torch.empty_like(like).stride()
        return drawn.as_strided(like.shape, strides, drawn.storage_offset())

    def _windows(self, like: torch.Tensor, places: Random) -> Iterator[torch.Tensor]:
        if self._by_value:
            values = [like, *(each for each in self._operands if each.shape == like.shape)]
            keys = [places.getrandbits(31) | 1 for _ in values]
            parts = (_parts(each.reshape(-1)) for each in values)
            yield from (self._of_values(part, keys) for part in zip(*parts, strict=True))
            return
        moves, count = _moves(), like.numel()
        for begin in range(0, max(count, 1), _WINDOW):
            place = places.getrandbits(18)
            row, place = moves[place & 1], place >> 1
            drawn = row[place : place + min(_WINDOW, count - begin)]
            drawn = drawn if self._times == 1.0 else drawn * self._times
            yield drawn.double() if like.dtype == torch.float64 else drawn

    def _of_values(self, values: Sequence[torch.Tensor], keys: Sequence[int]) -> torch.Tensor:
        """Return a hash of the bits of all values: sums of products, folded, and another product."""
        bits = [each.float().resolve_neg().view(torch.int32) & _UNSIGNED for each in values]
        mixed = bits[0].mul_(keys[0]).add_(keys[0])
        for other, key in zip(bits[1:], keys[1:], strict=True):
            mixed.add_(other.mul_(key))
        mixed.bitwise_xor_(mixed >> 15).mul_(_ODD)
        wide = torch.float64 if values[0].dtype == torch.float64 else torch.float32
        return mixed.to(wide).mul_(self._times / 2.0**31)

    def scale(
        self, tensor: torch.Tensor, units: torch.Tensor | float, keep: torch.Tensor | None
    ) -> None:
        """Move every element by up to ``units`` of its own last place, but those in ``keep``."""
        units = units * unit(tensor)
        if isinstance(units, torch.Tensor) or keep is not None or not tensor.is_contiguous():
            factor = self.draw(tensor).mul(units).add_(1)
            tensor.mul_(factor if keep is None else factor.masked_fill_(keep, 1))
        else:  # part by part, each while it is in the cache
            flat = _parts(tensor.view(-1))
            for part, drawn in zip(flat, self._windows(tensor, self._places), strict=True):
                part.mul_(drawn.mul(units).add_(1))
        if tensor.dtype == torch.float16:
            self._step(tensor, keep)

    def flush(self, tensor: torch.Tensor, keep: torch.Tensor | None) -> None:
        """Flush float32 below the least normal number, as some engines do, for every second seed.

        They flush all of it or none, so nothing is drawn; and to zero, where equals come together. For
        the other seeds it moves by whole steps there.
        """
        if tensor.dtype != torch.float32:
            return
        size, least = tensor.abs(), torch.finfo(tensor.dtype).tiny
        if size.aminmax().min >= least:
            return
        if not self.holds:
            self._step(tensor, keep)
            return
        low = size < least if keep is None else (size < least) & ~keep
        tensor.masked_fill_(low, 0)

    def appear(self, tensor: torch.Tensor) -> None:
        """Move what of float16 has become 0, of operands that are none, as who computes wider has it."""
        if tensor.dtype != torch.float16:
            return
        gone = tensor == 0
        for each in self._operands:
            gone &= each != 0
        if gone.any():
            self._by_steps(tensor, gone)

    def _step(self, tensor: torch.Tensor, keep: torch.Tensor | None) -> None:
        """Move what is below the least normal number by a unit as it is there, where sizes are no more."""
        low = (tensor.abs() < torch.finfo(tensor.dtype).tiny) & (tensor != 0)
        low = low if keep is None else low & ~keep
        if low.any():
            self._by_steps(tensor, low)

    def _by_steps(self, tensor: torch.Tensor, where: torch.Tensor) -> None:
        known = torch.finfo(tensor.dtype)
        step = self.draw(tensor).mul(1.5).round_().masked_fill_(~where, 0)
        tensor.add_(step, alpha=known.smallest_normal * known.eps)

    def push(self, tensor: torch.Tensor, units: float) -> None:
        """Move every element by ``units``, and the other way with the seed that this one's pair is."""
        side = self.draw(tensor, self._sides).sign().mul_(self._side)
        tensor.mul_(side.mul_(units * unit(tensor)).add_(1))

    def shift(self, tensor: torch.Tensor, amount: torch.Tensor, keep: torch.Tensor | None) -> None:
        """Move every element by up to ``amount`` times the unit of 1."""
        drawn = self.draw(tensor)
        drawn = drawn if keep is None else drawn.masked_fill(keep, 0)
        tensor.addcmul_(drawn, amount.nan_to_num(0.0, 0.0, 0.0), value=unit(tensor))


class Joiner(Mover):
    """Moves what is near to each other to the same number: by no more, onto a grid.

    Values that a kernel happens to part are equal in another, and to what compares them for equality
    (a peak is its neighbours' largest) moves that part them further never show it. The steps of the
    grid are twice the amplitude, in powers of two, so that equals need no equal amplitudes. A seed's
    grid is off by half a step from that of its pair: what lies within half a step of each other is
    joined by one of them.
    """

    def scale(
        self, tensor: torch.Tensor, units: torch.Tensor | float, keep: torch.Tensor | None
    ) -> None:
        """Round every element to a grid with steps of at most twice ``units`` of its last places."""
        self._join(tensor, tensor.abs().mul_(units * unit(tensor)), keep)

    def shift(self, tensor: torch.Tensor, amount: torch.Tensor, keep: torch.Tensor | None) -> None:
        """Round every element to a grid with steps of at most twice ``amount`` units of 1."""
        self._join(tensor, amount.nan_to_num(0.0, 0.0, 0.0) * unit(tensor), keep)

    def _join(self, tensor: torch.Tensor, amount: torch.Tensor, keep: torch.Tensor | None) -> None:
        wide = tensor.double()
        step = torch.frexp(amount.double() * self._times).exponent
        step = torch.ldexp(torch.ones_like(wide), step.expand_as(wide))
        off = self._sides.random() + (0.5 if self._side < 0 else 0.0)
        joined = wide.div(step).add_(off).round_().sub_(off).mul_(step).to(tensor.dtype)
        same = ~joined.isfinite() | (amount == 0)
        tensor.copy_(torch.where(same if keep is None else same | keep, tensor, joined))


def _parts(flat: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return a flat tensor in windows."""
    return (flat,) if flat.numel() <= _WINDOW else flat.split(_WINDOW)


def unit(tensor: torch.Tensor) -> float:
    """Return the last place of 1 in the dtype of ``tensor``."""
    return torch.finfo(tensor.dtype).eps


# What makes the numbers of few bits whole ones, and up to where they are few; others are bfloat16's.
_FEW_BITS = {
    torch.float64: (2.0**20, 2.0**31),
    torch.float32: (2.0**8, 2.0**15),
    torch.float16: (1.0, 2.0**11),
}
_FEWEST = (1.0, 2.0**8)


def few_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return which elements have few significant bits, as whole numbers and halves have."""
    steps, limit = _FEW_BITS.get(tensor.dtype, _FEWEST)
    scaled = tensor * steps if steps != 1.0 else tensor
    return (scaled == scaled.round()) & (tensor.abs() <= limit)


class Exactness:
    """Whether operands are of few bits, so that what is made of them can be exact."""

    def __init__(self, operands: Sequence[torch.Tensor], scalars: Sequence[float] = ()) -> None:
        self.operands, self._scalars = operands, scalars
        self._sums: tuple[torch.Tensor | None] | None = None

    @cached_property
    def some(self) -> bool:
        """Whether every operand has elements of few bits."""
        return all(abs(x) <= 2.0**31 and (x * 2.0**20).is_integer() for x in self._scalars) and all(
            map(has_few_bits, self.operands)
        )

    @cached_property
    def all(self) -> bool:
        """Whether all elements of all operands have few bits."""
        return self.some and all(bool(few_bits(each).all()) for each in self.operands)

    def sums(self, operand: torch.Tensor, axes: list[int]) -> torch.Tensor | None:
        """Return which sums over axes are exact: all of their terms have few bits, others have not.

        And so has the sum of their magnitudes, which no sum of some of them is beyond. The axes are 1 in
        what is returned: ``None`` where there is no such mix. It is found out once.
        """
        if self._sums is None:
            exact = None
            if axes and operand.is_floating_point() and self.some and not self.all:
                exact = few_bits(operand).all(dim=axes, keepdim=True)
                exact &= few_bits(operand.abs().sum(dim=axes, keepdim=True))
            self._sums = (exact,)
        return self._sums[0]


def has_few_bits(operand: torch.Tensor) -> bool:
    """Return whether some elements have few significant bits, of those that are looked at.

    Zeros are no such elements, but where there is nothing else. So few are sooner asked one by one than
    as a tensor.
    """
    if not operand.numel():
        return True
    extent = 1 + sum((n - 1) * s for n, s in zip(operand.shape, operand.stride(), strict=True))
    step = extent // _LOOKED_AT + 1
    some = operand.as_strided((-(-extent // step),), (step,), operand.storage_offset()).tolist()
    steps, limit = _FEW_BITS.get(operand.dtype, _FEWEST)
    nothing = True
    for x in some:
        if x and (x * steps).is_integer() and abs(x) <= limit:
            return True
        nothing = nothing and not x
    return nothing
