"""Values across the limit of a decision, in the place of those that inputs have led to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from onnx_gate.graph.intervals import ANYWHERE, Interval
from onnx_gate.verify.reach.margin import distance_from
from onnx_gate.verify.reach.rules import AT
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.steered import DecisionTaken


def moved_across(
    site: DecisionSite, taken: DecisionTaken, side: str, ends: Interval = ANYWHERE
) -> Iterator[torch.Tensor]:
    """Yield the operand with some of its elements, and with all of them, on a side.

    None lies beyond the ``ends`` that the operators before it have, even if that leaves it where it was.
    """
    x = taken.operand
    number = torch.arange(x.numel()).reshape(x.shape)
    across = _across(site, x, taken.limit, side, number)
    if x.dtype != torch.bool and ends != ANYWHERE:
        across = across.clamp(*(end if math.isfinite(end) else None for end in ends)).to(x.dtype)
    yield from (torch.where(number % 3 == 0, across, x), across.expand(x.shape))


def _across(
    site: DecisionSite, x: torch.Tensor, limit: Any, side: str, number: torch.Tensor
) -> torch.Tensor:
    """Return an operand of which every element is on a side, at different distances."""
    if site.kind == "truth":
        return torch.full_like(x, side == "true")
    if site.kind == "scale":
        centred = x - x.mean()
        scale = float(limit) ** 0.5 / (centred.square().mean().sqrt() + 1e-30)
        scaled: torch.Tensor = centred * scale * (0.25 + (number % 4) / 4)
        return scaled
    if site.kind == "half":
        first = 0 if bool((x >= 0).all()) else -4
        return (first + 2 * (number % 4) + (side == "odd") + 0.5).to(x.dtype)
    at = (limit if isinstance(limit, torch.Tensor) else torch.tensor(float(limit or 0))).to(x.dtype)
    if site.kind == "guard":
        return at * (number % 4).to(x.dtype) * torch.where(x < 0, -1, 1).to(x.dtype)
    if at.ndim > x.ndim or torch.broadcast_shapes(at.shape, x.shape) != x.shape:
        at = at.amin() if side == "below" else at.amax()
    if side == AT:
        return at.expand(x.shape)
    if site.kind == "equality":
        return at + 1
    if not x.is_floating_point():
        far = number % 3 + 1
        return (at - far if side == "below" else at + far).to(x.dtype)
    spread = x.std() if x.numel() > 1 else x.abs().amax()
    steps = torch.stack([s.expand(x.shape) for s in (at.abs() / 2, spread / 8, spread, 4 * spread)])
    step = steps.gather(0, (number % 4)[None])[0]
    step = torch.where(step > 0, step, torch.ones_like(step))
    crossed: torch.Tensor = at - step if side == "below" else at + step
    # A norm, a variance or a share that is never negative stays so.
    return crossed.clamp(min=0) if bool((x >= 0).all()) and bool((at > 0).all()) else crossed


def is_on(site: DecisionSite, value: torch.Tensor, limit: Any, side: str) -> bool:
    """Return whether some element is on a side: a narrow type begins anew where it ends."""
    if site.kind != "limit":
        return True
    distance = distance_from(value, 0.0 if limit is None else limit)
    if side == AT:
        return bool((distance == 0).any())
    return bool(((distance < 0) if side == "below" else (distance > 0)).any())
