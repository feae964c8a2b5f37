"""Inputs that bring one decision to its other side: steps along the gradient of its distance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.draw import Stream
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.leaves import InputLeaves, moved_by, run_with_gradients
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.values import draw_values
from onnx_gate.verify.reach.watch import Operand, Watch, Watcher

# A step that would just reach the limit of a linear function goes so much further, and steps by the
# gradient's signs are these shares of the domain: from a nudge to the corner that it points at.
_OVERSHOOT = 1.5
_SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
NEWTON = 2
STEPS = NEWTON + len(_SHARES)


@dataclass(frozen=True)
class GradientPass:
    """What one pass with gradients has shown: the inputs, and the operands of the decision sought."""

    watch: Watch
    arrays: Mapping[str, Array]
    leaves: InputLeaves
    operands: tuple[Operand, ...]


def follows(watcher: Watcher, inputs: Mapping[str, Array], known: Mapping[str, Domain]) -> None:
    """Learn of every decision whether a gradient leads from it to the inputs."""
    watch = Watch(watcher, follow=True)
    _try(watcher.eager, inputs, known, watch)
    watcher.take(watch)


def seek(
    watcher: Watcher,
    site: DecisionSite,
    side: str,
    start: Mapping[str, Array],
    known: Mapping[str, Domain],
) -> Iterator[Mapping[str, Array] | None]:
    """Yield after each pass: the inputs that show the side, which ends it, or nothing."""
    arrays = dict(start)
    for step in range(STEPS + 1):
        watch = Watch(watcher, frozenset((site,)))
        attempt = _try(watcher.eager, arrays, known, watch)
        if attempt is None:
            return
        if site in watch.seen and side in watch.seen[site].sides:
            yield arrays
            return
        yield None
        moved = None if step == STEPS else _moved(attempt, site, side, step, known)
        if moved is None:
            return
        arrays |= moved


def mutate(
    watcher: Watcher,
    site: DecisionSite,
    side: str,
    start: Mapping[str, Array],
    known: Mapping[str, Domain],
    tries: int,
) -> Iterator[Mapping[str, Array] | None]:
    """Do as ``seek`` does by changing elements at random, and keeping what comes nearer."""
    arrays, best = dict(start), -np.inf
    for number in range(tries):
        candidate = arrays
        if number:
            candidate = _mutated(arrays, known, ("mutate", site.module, site.operator, number))
        watch = Watch(watcher, frozenset((site,)))
        if _try(watcher.eager, candidate, {}, watch) is not None:
            seen = watch.seen.get(site)
            if seen is not None and side in seen.sides:
                yield candidate
                return
            near = -np.inf
            if seen is not None and side in ("above", "below"):
                near = seen.high if side == "above" else -seen.low
            if near >= best:
                arrays, best = dict(candidate), near
        yield None


def _mutated(
    arrays: Mapping[str, Array], known: Mapping[str, Domain], key: tuple[object, ...]
) -> dict[str, Array]:
    """Return the arrays with one element in four of each input drawn anew."""
    changed = dict(arrays)
    for name, domain in known.items():
        array = arrays[name]
        fixed = {name: domain.spec.__class__(domain.spec.dtype, array.shape, domain.spec.range)}
        fresh = draw_values(fixed, {name: domain}, {}, (*key, "fresh"))[name]
        chosen = Stream(*key, name).words(array.size) % np.uint64(4) == 0
        changed[name] = np.where(chosen.reshape(array.shape), fresh, array).astype(array.dtype)
    return changed


def _try(
    eager: Eager, arrays: Mapping[str, Array], known: Mapping[str, Domain], watch: Watch
) -> GradientPass | None:
    """Run the module with gradients to the inputs that may change, ``None`` where it refuses."""
    leaves = run_with_gradients(eager, arrays, known, watch)
    if leaves is None:
        return None
    operands = (o for each in watch.operands.values() for o in each)
    return GradientPass(watch, arrays, leaves, tuple(operands))


def _moved(
    attempt: GradientPass, site: DecisionSite, side: str, step: int, known: Mapping[str, Domain]
) -> dict[str, Array] | None:
    """Return the inputs one step nearer to the other side; ``None`` where nothing leads there."""
    chosen = _nearest(attempt.operands, side)
    if chosen is None:
        return None
    operand, index, distance = chosen
    sign = {"above": 1.0, "below": -1.0}.get(side, -1.0 if distance > 0 else 1.0)
    gradients = _gradients(attempt, operand, index)
    square = sum(float(g.double().square().sum()) for g in gradients.values())
    if not square or not np.isfinite(square):
        return None
    moved: dict[str, Array] = {}
    for name, gradient in gradients.items():
        low, high = known[name].low, known[name].high
        if step < NEWTON:
            beyond = abs(distance) * (_OVERSHOOT if side in ("above", "below") else 1.0)
            change = gradient * (sign * beyond / square)
        else:
            change = gradient.sign() * (sign * _SHARES[step - NEWTON] * (high - low))
        moved[name] = moved_by(attempt.arrays[name], change, known[name])
    return moved


def _nearest(operands: tuple[Operand, ...], side: str) -> tuple[Operand, int, float] | None:
    """Return the element that is nearest to the side: its operand, index and distance."""
    best: tuple[Operand, int, float] | None = None
    for operand in operands:
        if not operand.edges:
            continue
        flat = operand.distance.reshape(-1)
        rank = flat if side == "above" else -flat if side == "below" else -flat.abs()
        rank = torch.where(torch.isfinite(flat), rank, rank.new_tensor(-float("inf")))
        index = int(rank.argmax())
        if best is None or float(rank[index]) > _rank(best[2], side):
            best = operand, index, float(flat[index])
    return best


def _rank(distance: float, side: str) -> float:
    return distance if side == "above" else -distance if side == "below" else -abs(distance)


def _gradients(attempt: GradientPass, operand: Operand, index: int) -> dict[str, torch.Tensor]:
    """Return the gradient of one element's distance to each input that has one."""
    total: dict[str, torch.Tensor] = {}
    for edge, sign in operand.edges:
        one = torch.zeros_like(operand.distance)
        one.view(-1)[index] = sign
        shape = edge.node._input_metadata[edge.output_nr].shape
        if one.shape != shape:
            one = one.sum_to_size(shape)
        try:
            found = attempt.leaves.gradients([edge], [one])
        except RuntimeError:
            continue
        for name, gradient in found.items():
            total[name] = total.get(name, torch.zeros_like(gradient)) + gradient
    return total
