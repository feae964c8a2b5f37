"""What an operator's own algorithm loses: one model of its rounding per family of operators.

A sum of products is exact for operands that are each off by a little (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 3.1: componentwise backward stable). How little is
a walk and not a bound (Higham and Mary, SIAM J. Sci. Comput. 41, 2019): each of n additions loses
0.22 units of the partial sum that it makes (a uniform error of half a unit has a deviation of
0.29, and a mantissa between 1 and 2 makes it three quarters), so that adding one after the other
loses

- 0.155 sqrt(n) units of each term, as if the terms were off by that and each by its own, where
  partial sums walk about zero;
- 0.127 sqrt(n) units of the result, where the terms have one sign and partial sums grow with it.

Measured in PyTorch and in ONNX Runtime, for products, convolutions and sums of 4 to 16,384 terms:
0.15 to 0.17 and 0.13 where they add one after the other. Both add in parts once sums are long
(products from 256 terms on, sums over the last axis from 16), a convolution of PyTorch's and a
sum over the first axis of ONNX Runtime's never do.

So an operator has operands that are moved before it is run, which moves each element of the
result by what its own terms allow, whatever the others are; and then its result is moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from onnx_gate.verify.reference.chains import walk
from onnx_gate.verify.reference.equal import EQUAL, LONG, Equal, Given
from onnx_gate.verify.reference.in_turn import InTurn
from onnx_gate.verify.reference.noise import Exactness, unit

# The amplitude of a uniform move is sqrt(3) of its deviation.
TERM, RESULT = 0.155 * 3**0.5, 0.13 * 3**0.5
# A smaller move of an operand is none: most of it is rounded away.
_LEAST = 0.75
# So many units of 1, or of the largest number beside it, carry what is moved beyond a domain's end: what
# operators lose is modelled to within 8 times, and two of them may stand between a bound and the end.
_BEYOND_ITS_END = 16
# The rounding of a reciprocal, of the product with it and of the quotient add up to a unit and a half
# of the quotient's last place: what is that far from a half falls on either side.
_QUOTIENT = 2.0


@dataclass(frozen=True)
class Model:
    """How an operator rounds.

    ``chain`` says how many additions follow each other and ``operands`` (by name) are what is summed,
    moved beforehand. The result is moved by ``units`` of its last place, and those that the walk of
    its partial sums has lost; where there is ``tail`` by that many units of 1 as well. With ``inner``
    it multiplies by numbers of its own, and is exact for no operands. What is ``added`` to the sum at
    its end is moved by a unit: the sum is rounded at its own size before the two cancel. One that
    ``decides`` rounds a quotient to a whole number: its operands are moved by what a product with the
    reciprocal may differ from the quotient, and what comes out is one number or the next. One that
    others do ``in_steps`` has its operands of 16 bits moved by so many of their own units, or those that
    are ``folded`` into others, once for all places where they are used. ``equal`` says which share of
    the terms of each element of the result is equal. Terms that lie ``along`` an axis of an operand are
    multiplied by others each, and each is off by its own. What is taken ``in_turn`` is moved by what that
    loses. One that ``reduces`` says over which axes. No implementation leaves the operator's ``bounds``,
    and beyond the ends of its ``domain`` an operand (by name) has no result. One that ``underflows`` is
    exactly 0 only where an operand is, and what it makes 0 of others has been rounded. What exporters have
    ``rewritten``, as ONNX lacks the operator, loses by that what PyTorch keeps.
    """

    operands: tuple[str, ...] = ()
    chain: Callable[[Given], float] | None = None
    units: float = 1.0
    tail: Callable[[Given, torch.Tensor], torch.Tensor | float] | None = None
    inner: bool = False
    added: str = ""
    decides: bool = False
    in_steps: float = 0.0
    folded: tuple[str, ...] = ()
    equal: Equal | None = None
    along: int | None = None
    in_turn: InTurn | None = None
    reduces: Callable[[Given], list[int]] | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    domain: tuple[str, float, float] | None = None
    underflows: bool = False
    rewritten: str = ""

    def exact_sums(self, given: Given, operands: Exactness) -> torch.Tensor | None:
        """Return which results of a reduction are exact, ``None`` where that is no matter of each."""
        if self.reduces is None:
            return None
        return operands.sums(given["self"], self.reduces(given))

    def keep_inside(self, result: torch.Tensor, *, held: bool) -> None:
        """Have what was moved beyond the bounds stay as far inside of them, or be ``held`` there, in place.

        A probability below 0 has no logarithm, and no run in which there is one would tell anything. One
        of exactly 0 is what ONNX Runtime's sigmoid makes of -17, where PyTorch's makes 4e-8.
        """
        low, high = self.bounds
        if not (math.isfinite(low) or math.isfinite(high)):
            return
        ends = result.aminmax()
        # Where there is a NaN it is both ends.
        if bool(ends.min >= low and ends.max <= high):
            return
        for end, beyond in ((low, result < low), (high, result > high)):
            result.copy_(torch.where(beyond, end if held else 2 * end - result, result))

    def back_inside(self, given: Given, result: torch.Tensor) -> torch.Tensor | None:
        """Return the operand with what moves have carried out of the domain as far inside of it.

        ``None`` where nothing was: what is far outside was so before anything was moved.
        """
        operand = None if self.domain is None else given.get(self.domain[0])
        if self.domain is None or not isinstance(operand, torch.Tensor):
            return None
        if operand.shape != result.shape or not operand.is_floating_point():
            return None
        lost = result.isnan() & operand.isfinite()
        if not lost.any():
            return None
        _, low, high = self.domain
        largest = float(operand[operand.isfinite()].abs().max())
        reach = _BEYOND_ITS_END * unit(operand) * max(1.0, largest)
        below = lost & (operand < low) & (operand >= low - reach)
        above = lost & (operand > high) & (operand <= high + reach)
        inside = torch.where(below, 2 * low - operand, operand)
        return torch.where(above, 2 * high - operand, inside)

    def _walk(self, given: Given) -> float:
        return 1.0 if self.chain is None else walk(self.chain(given))

    def adds_few(self, given: Given) -> bool:
        """Return whether sums are made, of few terms each."""
        return self.chain is not None and self.chain(given) <= LONG

    def operand_units(self, given: Given) -> float:
        """Return by how many units of their own operands are moved."""
        if self.decides:
            return _QUOTIENT
        return max(_LEAST, TERM * self._walk(given))

    def result_units(self, given: Given, result: torch.Tensor) -> torch.Tensor | float:
        """Return by how many units of its own the result is moved."""
        units = max(self.units, RESULT * self._walk(given))
        if self.chain is None or self.equal is None or not result.numel():
            return units
        leaning = EQUAL * self.chain(given)
        if leaning <= units:
            return units
        share = self.equal(given, result)
        return (share * leaning).clamp(min=units) if share.any() else units
