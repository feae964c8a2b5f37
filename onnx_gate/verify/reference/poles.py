"""Operators next to a pole, where K times the rounding does any number of times as much.

A quotient by what is within rounding of 0 may be a number of any size: of runs that move the divisor few
come down next to 0, and how near the nearest one came is chance. So a run in which the divisor, moved,
has another sign than PyTorch's has it at 0, where the runs between would have had it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from onnx_gate.verify.reference.answers import WIDE
from onnx_gate.verify.reference.operator_mode import OperatorMode

# Where an operand, by its place, has the operator at an infinity.
_POLES: Mapping[str, tuple[int, tuple[float, ...]]] = {
    **dict.fromkeys(("log", "log2", "log10", "rsqrt", "reciprocal"), (0, (0.0,))),
    **dict.fromkeys(("atanh", "erfinv", "special_erfinv"), (0, (-1.0, 1.0))),
    "div": (1, (0.0,)),
    "log1p": (0, (-1.0,)),
    "logit": (0, (0.0, 1.0)),
}
# As many units of 1: what shares and differences of them lose.
_CARRIED = 8 * WIDE


class Poles(OperatorMode):
    """Sees what operands are next to a pole, call by call, and what of them a run has ``reached`` one."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, torch.Tensor] = {}
        self.reached: dict[tuple[int, float], torch.Tensor] = {}
        self._calls = 0

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Look at an operand, and have it as ``met`` does."""
        place, poles = _POLES.get(name.rstrip("_"), (0, ()))
        operand = args[place] if poles and place < len(args) else None
        if isinstance(operand, torch.Tensor) and operand.is_floating_point():
            other = self.met(self._calls, operand, poles)
            self._calls += 1
            if other is not operand and not (name.endswith("_") and not place):
                args = (*args[:place], other, *args[place + 1 :])
        return func(*args, **kwargs)

    def met(self, call: int, operand: torch.Tensor, poles: tuple[float, ...]) -> torch.Tensor:
        """Keep an operand that is next to a pole; return it."""
        few = _CARRIED * torch.finfo(operand.dtype).eps
        if any(bool(((operand - pole).abs() <= few).any()) for pole in poles):
            self.seen[call] = operand.clone()
        return operand


class Crossed(Poles):
    """Has what was moved to another side of a pole at it, and what may have come to one at an end.

    A probability is moved to no number above 1, and held there by half of the runs (``held``), so that 1
    less it has no other side, and is 0 in those. Nor has it any number of next to none: what is left of 1
    is some units of it and nothing between, as are the least numbers of all. Another one is as exact as
    any, whatever holds it at 0.
    """

    def __init__(self, before: Poles, *, held: bool) -> None:
        super().__init__()
        self._before, self._held = before, held

    def met(self, call: int, operand: torch.Tensor, poles: tuple[float, ...]) -> torch.Tensor:
        """Return the operand, or one with these elements at the pole."""
        own, known = self._before.seen.get(call), torch.finfo(operand.dtype)
        if own is None or own.shape != operand.shape:
            return operand
        unit, step = known.eps / 2, known.smallest_normal * known.eps
        reached = self._before.reached
        with _disable_current_modes():  # what moves rounding would move these
            for pole in poles:
                if self._held:
                    come = operand == pole
                    reached[call, pole] = come | reached.get((call, pole), come)
                off = (own - pole).abs()
                left = (off <= WIDE * unit) & (off.remainder(unit) == 0) | (off <= WIDE * step)
                left &= reached.get((call, pole), torch.zeros_like(left))
                beyond = ((own > pole) & (operand < pole)) | ((own < pole) & (operand > pole))
                at = torch.full_like(operand, pole)
                if not pole:  # a quotient by 0 has its sign
                    at = at.copysign(torch.where(beyond, operand, own))
                operand = torch.where(beyond | left, at, operand)
        return operand
