"""What no input reaches, compared at its operator: both sides go on from values across the limit.

The value that a decision is about is found in the file by what it holds on one case, and so is what the
operator makes of it. Moved across the limit and put in on both sides, it has to lead to the same: that
costs the few nodes in between. Where it does not, or nothing in the file is alike, what counts is where
it leads at the outputs: first in another order, which shows that the right value was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnx_gate.graph.steer import Steered
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_array, to_tensor
from onnx_gate.verify.reach.across import is_on, moved_across
from onnx_gate.verify.reach.margins import ORDERINGS
from onnx_gate.verify.reach.purse import Cost, measure
from onnx_gate.verify.reach.rules import AT, COUNTED
from onnx_gate.verify.reach.shown import Place
from onnx_gate.verify.reach.sites import DecisionSite, Seen
from onnx_gate.verify.reach.steered import DecisionTaken, SteeredModule
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import tensors_of
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.reference.variants import MaskedAttention, OrderOfEquals

# What it may cost, as a share of the run; and what a side costs, in forward passes.
SHARE = 0.1
_PASSES = 10.0
# And what a few nodes cost, which a session is made of: so many calls, and passes of the operand's numbers.
_CALLS, _NUMBERS = 200, 30
# Of all, the nodes alone may take this share.
_NEAR = 0.5
# So many elements tell most values apart.
_FEW = 64
_ROUNDINGS = 10.0
# Of zero they make another number than on either side.
_SIGNS = frozenset(("sign", "sgn"))


@dataclass(frozen=True)
class Nearness:
    """What of a value is as good as none: a warning is not a verdict.

    Both sides have computed a value ``alike`` where it is as near as this share of it; outputs are held
    against their rounding and the share ``near`` of them.
    """

    alike: float = 2e-5
    near: float = 1e-3


# Some units of float16 and bfloat16 (2^-11, 2^-8), and some steps of 255 levels over four deviations.
EXACT, HALF, INTEGER = Nearness(), Nearness(0.02, 0.05), Nearness(0.1, 0.2)


@dataclass(frozen=True)
class Probe:
    """A side of a decision that was compared at its operator.

    ``differs`` where the outputs are not the same; then ``expected`` and ``actual`` are PyTorch's
    and the file's at the worst element, and ``given`` is the value that was put in nearest to it.
    """

    site: DecisionSite
    side: str
    differs: bool = False
    expected: float = 0.0
    actual: float = 0.0


def probe(
    watcher: Watcher,
    arrays: Mapping[str, Array],
    cases: int,
    steered: Steered,
    order: Sequence[int],
    ranged: Collection[str] = (),
    nearness: Nearness = EXACT,
    doubted: Collection[DecisionSite] = (),
    late: Callable[[], bool] = lambda: False,
) -> Iterator[Probe]:
    """Yield the sides that were compared, of those that no case of so many has shown.

    And of those of ``doubted`` decisions, which were shown where nothing may have been compared.
    ``order`` is where the module's outputs are among the graph's. Of inputs that are ``ranged``
    nothing beyond is asked: nobody will feed it. Nothing more is compared once it is ``late``. Raises
    ``Refusal``.
    """
    left = to_compare(watcher, doubted)
    cost = measure(watcher.eager, arrays)
    purse = SHARE * cost.run(cases)
    module = SteeredModule(watcher, arrays)
    taken, before = module.look(frozenset(site for site, _ in left))
    alike = {s: Alike(t.operand, EXACT.alike) for s, t in taken.items() if t.operand.numel()}
    places = {
        site: roots
        for site, roots in module.roots(alike).items()
        if roots and not any(place in ranged for place, _ in roots)
    }
    further: list[tuple[_Near, DecisionSite, str]] = []
    inside: dict[DecisionSite, list[str]] = {}
    kept = (1 - _NEAR) * purse
    for site, side in left:
        if site not in places:
            continue
        price = Cost(_CALLS, _NUMBERS * taken[site].operand.numel(), 0).forward()
        near = _Near()
        if price <= purse - kept and not late():
            purse -= price
            if site not in inside:
                alike_here = Alike(taken[site].operand, nearness.alike)
                inside[site] = steered.roots(alike_here.of_array)
            near = _made_near(steered, inside[site], site, taken[site], side, nearness)
        if near.agrees and not near.differs:
            yield Probe(site, side)
        else:
            further.append((near, site, side))
    # What makes something else of it comes first, and then where only some does.
    further.sort(key=lambda each: (not each[0].differs, each[0].agrees))
    affordable = int(purse / (_PASSES * cost.forward()))
    for nth, (near, site, side) in enumerate(further):
        found = Probe(site, side) if near.agrees else None
        if nth < affordable and not late():
            with suppress(Refusal):
                at = taken[site], places[site]
                bench = _Bench(module, steered, site, *at, before, order, nearness)
                found = bench.compare(side) or found
        if found is not None:
            yield found


def to_compare(
    watcher: Watcher, doubted: Collection[DecisionSite] = ()
) -> list[tuple[DecisionSite, str]]:
    """Return the sides that are to be compared at their operators, those that are counted first."""
    left = [(s, side) for s, seen in watcher.seen.items() for side in _left(s, seen)]
    left += [(s, AT) for s, seen in watcher.seen.items() if _is_strict_or_not(s, seen)]
    left.sort(key=lambda each: each[0].kind not in COUNTED or each[1] not in each[0].sides)
    again = [s for s in watcher.seen if s in doubted and s.kind in COUNTED - {"rows", "and", "or"}]
    return left + [(s, side) for s in again if watcher.seen[s].moves for side in s.sides]


def _is_strict_or_not(site: DecisionSite, seen: Seen) -> bool:
    """Return whether it compares with numbers of the module's, strictly or not, or takes signs.

    Inputs that are exactly there may leave open what follows. Numbers that are computed are others in the
    file, in their last bits.
    """
    compares = site.kind == "limit" and site.operator in ORDERINGS | _SIGNS
    return compares and seen.named and seen.moves


def _left(site: DecisionSite, seen: Seen) -> Sequence[str]:
    if site.has_rows or site.kind in ("and", "or") or not seen.moves:
        return ()
    if site.kind == "half":
        # On inputs the last bit of what is rounded decides, which leaves the element open.
        return site.sides
    if site.kind in COUNTED:
        return seen.left(site)
    return [side for side in seen.left(site) if side == "within"]


@dataclass(frozen=True)
class _Near:
    """Whether few nodes of the file make of an operand what PyTorch does, and whether others do not."""

    agrees: bool = False
    differs: bool = False


def _made_near(
    steered: Steered,
    here: Sequence[str],
    site: DecisionSite,
    taken: DecisionTaken,
    side: str,
    nearness: Nearness,
) -> _Near:
    """Return what the file makes of the operand of PyTorch's operator on a side.

    ``here`` are the values that hold the operand in the file. Neither where nothing there is made of it
    that is like what the operator makes. What agrees at a limit is the operator's only if it does on both
    sides of it: of few elements other comparisons make the same. A value that is compared twice may be
    wrong once, so what agrees does not speak for what does not.
    """
    if taken.operator is None:
        return _Near()

    def near(one: torch.Tensor) -> Callable[[Array], bool]:
        return Alike(one, nearness.alike).of_array

    agrees = differs = False
    try:
        moved = [
            (value, tensors_of(taken.operator(value))[0])
            for value in moved_across(site, taken, side, steered.ends(here))
        ]
        there = all(is_on(site, value, taken.limit, side) for value, _ in moved)
        moved += [
            (value, tensors_of(taken.operator(value))[0])
            for other in (site.sides if side == AT else ())
            for value in moved_across(site, taken, other, steered.ends(here))
        ]
        if not here or not there or not all(bool(made.isfinite().all()) for _, made in moved):
            return _Near()
        for make in steered.near(here, near(tensors_of(taken.operator(taken.operand))[0])):
            same = all(near(made)(np.asarray(make(to_array(value)))) for value, made in moved)
            agrees, differs = agrees or same, differs or not same
            if agrees and differs:
                break
    except (Refusal, RuntimeError, IndexError):
        pass
    return _Near(agrees, differs)


class Alike:
    """Whether a value is one that is known, each computed to within a share of itself."""

    def __init__(self, known: torch.Tensor, share: float) -> None:
        self._known, self._within = known, known
        # Nearly all are others, which a few elements show.
        self._few = slice(None, None, max(1, known.numel() // _FEW))
        if known.is_floating_point():
            self._within = share * (known.abs() + known.square().mean().sqrt())

    def __call__(self, other: torch.Tensor) -> bool:
        """Return whether another tensor is as good as the one that is known."""
        known = self._known
        if known.shape != other.shape:
            return False
        if known.is_floating_point() and other.is_floating_point():
            other = other.to(known.dtype)
        elif known.dtype != other.dtype:
            return False
        flat = [each.reshape(-1) for each in (known, other, self._within)]
        return self._near(*(each[self._few] for each in flat)) and self._near(*flat)

    def of_array(self, array: Array) -> bool:
        """Return whether an array of the file's is."""
        return array.shape == self._known.shape and self(_tensor(array, self._known))

    def _near(self, known: torch.Tensor, other: torch.Tensor, within: torch.Tensor) -> bool:
        if not known.is_floating_point():
            return torch.equal(known, other)
        return bool(((known - other).abs() <= within).all())


class _Bench:
    """One decision, with the places of what it is about on both sides."""

    def __init__(
        self,
        module: SteeredModule,
        steered: Steered,
        site: DecisionSite,
        taken: DecisionTaken,
        roots: list[Place],
        before: Sequence[Array],
        order: Sequence[int],
        nearness: Nearness,
    ) -> None:
        self._module, self._site, self._taken = module, site, taken
        self._roots, self._before, self._order = roots, before, order
        self._near = nearness.near
        operand = taken.operand
        alike = Alike(operand, nearness.alike)
        here = steered.roots(alike.of_array)
        flipped = operand.reshape(-1).flip(0).reshape(operand.shape)
        told = not alike(flipped)
        # What is the same everywhere says nothing of where it is, if there are others like it.
        if not here or (not told and (len(here) > 1 or len(roots) > 1)):
            raise Refusal("the value is not in the file")
        self._behind, self._ends = [steered.behind(here)], steered.ends(here)
        # All false is many a truth: one that is made of another leads where PyTorch's does, if it is it.
        truths = [] if told or operand.dtype != torch.bool else steered.alike(alike.of_array)
        more = [name for name in truths if name not in here]
        self._behind += [steered.behind([name]) for name in more]
        if told and self._difference(flipped) is not None:
            raise Refusal("it is another value")

    def compare(self, side: str) -> Probe | None:
        """Return what a side shows, ``None`` where it cannot be brought about or seen."""
        compared, others = None, [self._before]
        if side == AT:  # where both sides meet, it is what one of them is
            others += [self._put(last)[1] for s in self._site.sides for last in self._on(s)[-1:]]
        for value in self._on(side):
            try:
                sides, outputs = self._put(value)
                shows = any(self._shows(outputs, each) for each in others)
                if side not in sides or not _finite(outputs) or not shows:
                    continue
                worst = self._difference(value, outputs)
            except Refusal:
                continue
            compared = Probe(self._site, side)
            if worst is not None:
                return Probe(self._site, side, True, *worst)
        return compared

    def _on(self, side: str) -> list[torch.Tensor]:
        return list(moved_across(self._site, self._taken, side, self._ends))

    def _put(self, value: torch.Tensor) -> tuple[set[str], tuple[Array, ...]]:
        return self._module.put(self._site, self._roots, value)

    def _shows(self, outputs: Sequence[Array], others: Sequence[Array]) -> bool:
        pairs = zip(outputs, others, strict=True)
        return any(self._worst(a, b) is not None for a, b in pairs)

    def _difference(
        self, value: torch.Tensor, outputs: Sequence[Array] | None = None
    ) -> tuple[float, float] | None:
        """Return both sides where they differ most with a value put in; raises ``Refusal``."""
        if outputs is None:
            _, outputs = self._put(value)
            if not _finite(outputs):
                raise Refusal("not finite")
        given, wanted, worst = to_array(value), range(len(outputs)), None
        others: list[Sequence[Array]] = []
        for behind in self._behind:
            answers = behind(given)
            pairs = [(o, np.asarray(answers[n])) for o, n in zip(outputs, self._order, strict=True)]
            if all(self._worst(t, c) is None for t, c in pairs):
                return None
            others = others or list(self._others(value))
            found = (self._worst(*pairs[n], [other[n] for other in others]) for n in wanted)
            differs = next((each for each in found if each is not None), None)
            if differs is None:
                return None
            worst = worst or differs
        return worst

    def _worst(
        self, expected: Array, actual: Array, others: Sequence[Array] = ()
    ) -> tuple[float, float] | None:
        return _worst(expected, actual, others, self._near)

    def _others(self, value: torch.Tensor) -> Iterator[Sequence[Array]]:
        """Yield what else may be right: with rounding moved, and where PyTorch leaves it open."""
        modes: list[Callable[[], Any]] = [
            lambda: MovedRounding(1),
            lambda: MovedRounding(2),
            lambda: MaskedAttention(fill=0.0),
            lambda: MaskedAttention(fill=None),
            lambda: OrderOfEquals(first=True),
            lambda: OrderOfEquals(first=False),
        ]
        for mode in modes:
            yield self._module.put(self._site, self._roots, value, mode())[1]


def _tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    if array.dtype.kind == "V":  # bfloat16, of which PyTorch takes no array
        array = array.astype(np.float32)
    if array.shape != like.shape or array.dtype.kind not in "fiub":
        return torch.empty(0)
    return to_tensor(array)


def _finite(outputs: Sequence[Array]) -> bool:
    return all(bool(np.isfinite(a).all()) for a in outputs if a.dtype.kind == "f")


def _worst(
    expected: Array, actual: Array, others: Sequence[Array], share: float
) -> tuple[float, float] | None:
    """Return the element at which two answers are furthest apart, ``None`` where they are near."""
    if expected.shape != actual.shape:
        return float("nan"), float("nan")
    if not expected.size:
        return None
    if expected.dtype.kind == "V" or actual.dtype.kind == "V":
        return None
    t, c = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(all="ignore"):
        moves = [np.nan_to_num(np.abs(o.astype(np.float64) - t), nan=np.inf) for o in others]
        move = np.max(moves, axis=0) if moves else np.zeros_like(t)
        near = 0.5 * (move == 0)
        if expected.dtype.kind == "f":
            near = share * (np.abs(t) + np.sqrt(np.mean(t * t)))
        beyond = np.nan_to_num(np.abs(c - t), nan=np.inf) - near - _ROUNDINGS * move
    index = int(np.argmax(np.nan_to_num(beyond, nan=-np.inf)))
    if not beyond.flat[index] > 0:
        return None
    return float(t.flat[index]), float(c.flat[index])
