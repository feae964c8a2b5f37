"""Inputs that bring one decision to its other side: each row of a batch climbs towards it.

Rows do not meet, so one pass with gradients is a step for every one of them, from another place and
towards another element of what is decided: half of them towards the nearest, the others spread over
all. A row keeps the nearest that it has come to. Newton's steps find what is linear; those that follow
go along the gradient's signs, and one that brings a row no nearer halves its next. A pass costs what it
does for the batch; there are at most ``STEPS + 1``, and one more for each truth that is a part of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import Stream
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.leaves import InputLeaves, by_row, moved_by, run_with_gradients
from onnx_gate.verify.reach.margin import Margin
from onnx_gate.verify.reach.margins import TRUTHS
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.stack import axis_of
from onnx_gate.verify.reach.values import draw_values
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher

# A step that would just reach the limit of a linear function goes so much further.
_OVERSHOOT = 1.5
# The first step along the gradient's signs, as a share of the domain.
_SHARE = 1 / 8
NEWTON, STEPS = 2, 14
# What a guard is added to is a sum of squares, whose root is double: a step that would reach the root of
# what is linear goes half of the way to it. The whole way and half of it by turns ends in no zigzag: 42 of
# them come to 1e-9 where the squares are those of 4 to 16 sums of twice as many inputs.
_SQUARES, _TO_SQUARES = (2.0, 1.0), 3 * STEPS
# Of more truths than this not each has a step.
_PARTS = 64
# On which side of the limit a side is, where it is on one.
_TOWARDS = {
    **dict.fromkeys(("above", "true", "rest", *TRUTHS), 1.0),
    **dict.fromkeys(("below", "false"), -1.0),
}
# How many rows climb, where a pass of them costs little more than one of few.
CLIMBERS = (32, 8)
# And how many go each their own way.
RAISERS = (256, 64, *CLIMBERS)


@dataclass(frozen=True)
class Start:
    """Inputs to climb from, their sizes, and how many ``rows`` of them climb along ``axes`` of theirs.

    They lie along the first axis of an input that ``axes`` does not say otherwise of.
    """

    arrays: Mapping[str, Array]
    sizes: Sizes
    rows: int = 1
    axes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GradientPass:
    """What one pass with gradients has shown: the inputs, and the operands of the decision sought."""

    arrays: Mapping[str, Array]
    leaves: InputLeaves
    operands: tuple[Margin, ...]


def follows(watcher: Watcher, inputs: Mapping[str, Array], known: Mapping[str, Domain]) -> None:
    """Learn of every decision whether a gradient leads from it to the inputs."""
    leaves = InputLeaves()
    watch = Watch(watcher, follow=True, leaves=leaves)
    _try(watcher, inputs, known, watch, leaves)
    watcher.take(watch)


def seek(
    watcher: Watcher,
    site: DecisionSite,
    side: str,
    start: Start,
    known: Mapping[str, Domain],
    columns: torch.Tensor | None = None,
) -> Iterator[Mapping[str, Array] | None]:
    """Yield after each pass: the inputs that show the side, which ends it, or nothing.

    Where ``columns`` are given, rows climb each to one of them, and as many as do show the side there.
    """
    arrays, climb = dict(start.arrays), None
    for step in count():
        leaves = InputLeaves()
        watch = Watch(watcher, frozenset((site,)), side=side, leaves=leaves)
        attempt = _try(watcher, arrays, known, watch, leaves)
        if attempt is None:
            return
        if columns is None and site in watch.seen and side in watch.seen[site].sides:
            yield arrays
            return
        yield None
        climb = climb or _begin(attempt, site, side, known, start, columns)
        moved = None if climb is None or step >= climb.most else climb.step(attempt, step)
        if columns is not None and climb is not None and (moved is None or climb.arrived.all()):
            if climb.arrived.any():
                yield arrays | climb.kept
            return
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
        if _try(watcher, candidate, {}, watch, InputLeaves()) is not None:
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
    watcher: Watcher,
    arrays: Mapping[str, Array],
    known: Mapping[str, Domain],
    watch: Watch,
    leaves: InputLeaves,
) -> GradientPass | None:
    """Run the module with gradients to the inputs that may change, ``None`` where it refuses."""
    ran = run_with_gradients(watcher.eager, arrays, known, watch, own=watcher.kept, leaves=leaves)
    if ran is None:
        return None
    operands = (o for each in watch.operands.values() for o in each)
    return GradientPass(arrays, leaves, tuple(operands))


class _Climb:
    """What each row has come to: how near, with which inputs, and which way is further.

    ``place`` is that of the operand among those of a pass, ``targets`` are flat indices into it, one
    of each row, and ``axes`` those of inputs along which rows lie behind the first.
    """

    def __init__(
        self,
        side: str,
        known: Mapping[str, Domain],
        place: int,
        targets: torch.Tensor,
        axes: Mapping[str, int],
        *,
        squares: bool,
    ) -> None:
        self._exact = torch.zeros(targets.shape, dtype=torch.bool)
        self._newton, self.most = NEWTON, STEPS
        self._squares = squares
        self._side, self._known, self._place, self._targets = side, known, place, targets
        self._axes = axes
        self._away = torch.full((len(targets),), torch.inf, dtype=torch.float64)
        self._shares = torch.full((len(targets),), _SHARE, dtype=torch.float64)
        self.kept: dict[str, Array] = {}
        self._gradients: dict[str, torch.Tensor] = {}

    @property
    def arrived(self) -> torch.Tensor:
        """Which rows have come to the side."""
        return self._away < 0

    def step(self, attempt: GradientPass, number: int) -> dict[str, Array] | None:
        """Take note of a pass and return the inputs of the next; ``None`` where nothing leads on."""
        self._learn(attempt, number)
        if not any(gradient.any() for gradient in self._gradients.values()):
            return None
        rows = len(self._targets)
        squares = (
            gradient.double()
            .square()
            .movedim(self._axes.get(name, 0) if gradient.ndim else 0, 0)
            .reshape(rows, -1)
            for name, gradient in self._gradients.items()
        )
        overshoot = torch.ones_like(self._away)
        if self._side in _TOWARDS:
            overshoot[~self._exact] = _OVERSHOOT
        if self._squares:
            overshoot *= _SQUARES[number % len(_SQUARES)]
        beyond = overshoot * self._away / torch.cat(list(squares), 1).sum(1)
        moved: dict[str, Array] = {}
        for name, gradient in self._gradients.items():
            span = self._known[name].high - self._known[name].low
            axis = self._axes.get(name, 0)
            if number < self._newton:
                change = gradient * by_row(-beyond.nan_to_num(0.0, 0.0, 0.0), gradient, axis)
            else:
                change = gradient.sign() * by_row(-span * self._shares, gradient, axis)
            moved[name] = moved_by(self.kept[name], change, self._known[name])
        return moved

    def _learn(self, attempt: GradientPass, number: int) -> None:
        """Keep what has brought rows nearer; have the others go less far."""
        operands = attempt.operands[self._place :]
        if not operands or operands[0].distance.numel() <= int(self._targets.max()):
            return  # this pass took another way
        # Of what several truths make each has its turn.
        parts = min(operands[0].parts, _PARTS)
        self._newton, self.most = NEWTON + max(len(operands[0].pulls), parts), STEPS + parts - 1
        if self._squares:
            self._newton = self.most = _TO_SQUARES
        exact = operands[0].exact.broadcast_to(operands[0].distance.shape).reshape(-1)
        ahead = operands[0].distance.reshape(-1)[self._targets].double()
        away = _away(ahead, self._side)
        # A step towards the root of a sum of squares is one even where the sum grows.
        nearer = torch.isfinite(away) if self._squares else away < self._away
        if number > self._newton:
            self._shares[~nearer] /= 2
        self._away = torch.where(nearer, away, self._away)
        self._exact = torch.where(nearer, exact[self._targets], self._exact)
        if not nearer.any():
            return
        towards = _TOWARDS.get(self._side)
        signs = ahead.sign() if towards is None else torch.full_like(ahead, -towards)
        found = _gradients(attempt, operands[0], self._targets, signs * nearer)
        for name, gradient in found.items():
            new = by_row(nearer, gradient, self._axes.get(name, 0)).expand(gradient.shape)
            old = self._gradients.get(name, torch.zeros_like(gradient))
            self._gradients[name] = torch.where(new, gradient.nan_to_num(0.0, 0.0, 0.0), old)
            array = attempt.arrays[name]
            before = self.kept.get(name, array)
            self.kept[name] = np.where(new.numpy(force=True), array, before).astype(array.dtype)


def _begin(
    attempt: GradientPass,
    site: DecisionSite,
    side: str,
    known: Mapping[str, Domain],
    start: Start,
    columns: torch.Tensor | None,
) -> _Climb | None:
    """Choose an element for every row of the nearest operand; ``None`` where no gradient leads on."""
    away = {
        place: _away(operand.distance.reshape(-1), side)
        for place, operand in enumerate(attempt.operands)
        if operand.pulls and operand.distance.numel()
    }
    if not away:
        return None
    place = min(away, key=lambda each: float(away[each].min()))
    axes, rows = start.axes, start.rows if away[place].numel() % start.rows == 0 else 1
    shape = attempt.operands[place].distance.shape
    places = torch.arange(away[place].numel()).reshape(shape)
    along = axis_of(shape, rows, max(axes.values(), default=0)) if any(axes.values()) else None
    places = places.movedim(along or 0, 0).reshape(rows, -1) if shape else places.reshape(1, 1)
    each = away[place][places]
    ranks = (2 * torch.arange(rows) - rows).clamp(min=0) * each.shape[1] // rows
    own = each.argsort(1).gather(1, ranks[:, None])
    if columns is not None:
        if each.shape[1] <= int(columns.max()):
            return None
        own = columns[torch.arange(rows) % len(columns), None]
    targets, axes = places.gather(1, own)[:, 0], axes if rows > 1 else {}
    return _Climb(side, known, place, targets, axes, squares=site.kind == "guard")


def _away(ahead: torch.Tensor, side: str) -> torch.Tensor:
    """Return how far from the side elements are; infinite where nothing can be said."""
    away = -ahead * _TOWARDS[side] if side in _TOWARDS else ahead.abs()
    return torch.where(torch.isfinite(away), away.double(), torch.inf)


def _gradients(
    attempt: GradientPass, operand: Margin, places: torch.Tensor, signs: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the gradient of some elements' distances, each times its sign, to each input that has one."""
    total: dict[str, torch.Tensor] = {}
    for pull in operand.pulls:
        at, factors = pull.places.reshape(-1)[places], signs * pull.factors.reshape(-1)[places]
        if isinstance(pull.edge, str):
            like = attempt.leaves.tensors[pull.edge]
            one = torch.zeros(like.shape, dtype=torch.float64)
            one.view(-1).index_add_(0, at, factors.double())
            total[pull.edge] = total.get(pull.edge, torch.zeros_like(one)) + one
            continue
        known = pull.edge.node._input_metadata[pull.edge.output_nr]
        one = torch.zeros(known.shape, dtype=known.dtype)
        one.view(-1).index_add_(0, at, factors.to(one.dtype))
        try:
            found = attempt.leaves.gradients([pull.edge], [one])
        except RuntimeError:
            continue
        for name, gradient in found.items():
            total[name] = total.get(name, torch.zeros_like(gradient)) + gradient
    return total
