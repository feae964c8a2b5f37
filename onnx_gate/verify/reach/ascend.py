"""Inputs that raise what layers make: values as large as trained networks have and draws do not show.

Each row of a batch raises an element of its own, or lowers it: one ascent is for many channels of many
layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.leaves import InputLeaves, by_row, moved_by, run_with_gradients
from onnx_gate.verify.reach.seek import Start
from onnx_gate.verify.reach.stack import axis_of
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import OperatorMode

# Steps of each ascent: outliers were found within twenty.
ASCENTS, STEPS = 6, 20
# So many layers, spread over the depth, come first, and then those between.
_PARTS = (6, 12, 24)
# Multiples of the golden section are spread over a whole, however many there are.
_GOLDEN = (math.sqrt(5) - 1) / 2
# A step along the gradient's signs, as a share of the domain; one that raises nothing halves the next.
_SHARE = 1 / 8
# What is raised by less than this shows what the start has shown.
_RAISED = 1.25
_PRODUCTS = frozenset(("convolution", "addmm", "mm", "bmm", "baddbmm", "linear", "_trilinear"))


class _Layers(OperatorMode):
    """Keeps what products of a pass make."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator and keep its result where it is a layer's."""
        result = func(*args, **kwargs)
        if name in _PRODUCTS and isinstance(result, torch.Tensor) and result.numel():
            self.made.append(result)
        return result


def ascend(
    watcher: Watcher,
    start: Start,
    known: Mapping[str, Domain],
    pays: Callable[[], bool],
) -> Iterator[Mapping[str, Array]]:
    """Yield inputs of which each row raises an element of a layer: other ones in each.

    ``pays`` is asked before each pass.
    """
    if not known or not pays():
        return
    layers = _spread(len(_pass(watcher, start.arrays, known)[1]))
    for number in range(ASCENTS if layers else 0):
        ascent = _Ascent(start, known, layers, number)
        candidate: Mapping[str, Array] | None = start.arrays
        for _ in range(STEPS + 1):
            if candidate is None or not pays():
                break
            leaves, made = _pass(watcher, candidate, known)
            candidate = None if leaves is None else ascent.step(candidate, made, leaves)
        if ascent.has_raised:
            yield ascent.kept


def _spread(count: int) -> list[int]:
    """Return the numbers of layers, of which the first are spread over all."""
    places = (count * (n + 1) // parts - 1 for parts in _PARTS for n in range(parts))
    return [place for place in dict.fromkeys(places) if place >= 0]


def _pass(
    watcher: Watcher, arrays: Mapping[str, Array], known: Mapping[str, Domain]
) -> tuple[InputLeaves | None, list[torch.Tensor]]:
    """Run with gradients; return the inputs that may change, and what layers make."""
    layers = _Layers()
    leaves = run_with_gradients(watcher.eager, arrays, known, layers, own=watcher.kept)
    return leaves, [each for each in layers.made if each.requires_grad and leaves is not None]


@dataclass(frozen=True)
class _Aim:
    """An element of a layer, by its flat place, which a row raises or lowers, and what it was at first."""

    layer: int
    place: int
    way: float
    first: float


class _Ascent:
    """What each row has come to, and with which inputs; each next ``number`` has other elements."""

    def __init__(
        self, start: Start, known: Mapping[str, Domain], layers: Sequence[int], number: int
    ) -> None:
        self._known, self._start, self._layers, self._number = known, start, layers, number
        self.kept: dict[str, Array] = dict(start.arrays)
        self._signs: dict[str, torch.Tensor] = {}
        self._aims: list[_Aim] = []
        self._best = torch.full((start.rows,), -torch.inf, dtype=torch.float64)
        self._shares = torch.full((start.rows,), _SHARE, dtype=torch.float64)

    @property
    def has_raised(self) -> bool:
        """Whether a row has come to far more than its layer had at first."""
        best = zip(self._best.tolist(), self._aims, strict=False)
        return any(reached > _RAISED * aim.first for reached, aim in best)

    def step(
        self, arrays: Mapping[str, Array], made: Sequence[torch.Tensor], leaves: InputLeaves
    ) -> Mapping[str, Array] | None:
        """Take note of what layers have made; return the next inputs, ``None`` where nothing leads on."""
        self._aims = self._aims or [*self._chosen(made)]
        try:
            values = self._aimed_at(made)
        except IndexError:
            return None  # this pass took another way
        reached = values.detach().nan_to_num(-torch.inf, -torch.inf, -torch.inf)
        better = reached > self._best
        self._best = torch.where(better, reached, self._best)
        self._shares[~better] /= 2
        for name, gradient in leaves.gradients([values.sum()]).items():
            new = by_row(better, gradient, self._axis(name)).expand(gradient.shape)
            old = self._signs.get(name, torch.zeros_like(gradient))
            self._signs[name] = torch.where(new, gradient.sign(), old)
            array = arrays[name]
            kept = np.where(new.numpy(force=True), array, self.kept[name])
            self.kept[name] = kept.astype(array.dtype)
        if not any(sign.any() for sign in self._signs.values()):
            return None
        moved = {}
        for name, sign in self._signs.items():
            span = self._known[name].high - self._known[name].low
            change = sign * by_row(span * self._shares, sign, self._axis(name))
            moved[name] = moved_by(self.kept[name], change, self._known[name])
        return {**self.kept, **moved}

    def _aimed_at(self, made: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what each row aims at, as it is now; each layer is asked once, which gradients cost."""
        rows: dict[int, list[int]] = {}
        for row, aim in enumerate(self._aims):
            rows.setdefault(aim.layer, []).append(row)
        values = torch.zeros(len(self._aims), dtype=torch.float64)
        for layer, own in rows.items():
            places = torch.tensor([self._aims[row].place for row in own])
            ways = torch.tensor([self._aims[row].way for row in own], dtype=torch.float64)
            found = made[layer].reshape(-1)[places].double() * ways
            values = values.index_put((torch.tensor(own),), found)
        return values

    def _axis(self, name: str) -> int:
        return self._start.axes.get(name, 0)

    def _chosen(self, made: Sequence[torch.Tensor]) -> Iterator[_Aim]:
        """Choose for each row a layer, an element and which way it goes: the largest elements first."""
        rows, number = self._start.rows, self._number
        whole = [n for n in self._layers if n < len(made) and made[n].numel() % rows == 0]
        layers = whole if rows > 1 else self._layers
        together = min(len(layers), max(1, rows // 2))
        turns = [layers[(number * together + n) % len(layers)] for n in range(together)]
        found = {layer: self._places(made[layer].detach()) for layer in turns}
        for row in range(rows if turns else 0):
            places, sizes = found[turns[row % together]]
            ranks = sizes.abs().amax(0).argsort(descending=True)
            turn, width = row // together, len(ranks)
            each = number * max(1, rows // together // 2) + turn // 2
            at = int(ranks[each * _stride(width) % width if rows > 1 else 0])
            lone = 1.0 if sizes[0, at] >= 0 else -1.0
            way = (1.0, -1.0)[turn % 2] if rows > 1 else lone
            first = float(sizes[:, at].abs().amax())
            yield _Aim(turns[row % together], int(places[row, at]), way, first)

    def _places(self, made: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the flat places of a layer's elements, row by row, and the elements."""
        places = torch.arange(made.numel()).reshape(made.shape)
        axis = max(self._start.axes.values(), default=0)
        places = places.movedim(axis_of(tuple(made.shape), self._start.rows, axis) or 0, 0)
        places = places.reshape(self._start.rows, -1)
        return places, made.reshape(-1).double().nan_to_num(0.0, 0.0, 0.0)[places]


def _stride(width: int) -> int:
    """Return a stride by which so many places are gone through, each once, spread from the first on."""
    stride = max(1, round(_GOLDEN * width))
    while math.gcd(stride, width) > 1:
        stride += 1
    return stride
