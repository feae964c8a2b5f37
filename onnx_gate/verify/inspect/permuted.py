"""Experts that have changed places together with the rows of what chooses among them: the same model.

A router gives each expert a row. The weights of experts lie in a stack, one behind the other, or each in
a module of a list of them, which is a stack just as well. A file may have them in another order, if all
have it: then each row chooses the expert that it did. What the inputs reach need not show it, and one of
them in another order than the rest stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.weight_bits import cast_to, castable
from onnx_gate.verify.inspect.wrong_weight import WrongWeight

_Order = tuple[int, ...]


@dataclass(frozen=True)
class _Stack:
    """What has a part for each expert: one parameter, or those of one name in a list of modules."""

    parameters: tuple[str, ...]

    def part(self, known: KnownWeights, at: int) -> Array | None:
        """Return the part of one expert."""
        one = len(self.parameters) == 1
        own = known.value(self.parameters[0 if one else at])
        return own[at] if own is not None and one else own

    def is_symmetric(self, known: KnownWeights, order: _Order) -> bool:
        """Return whether parts in another order are the same ones, as those of a bias of zeros are."""
        moved = [(at, to) for at, to in enumerate(order) if at != to]
        pairs = ((self.part(known, at), self.part(known, to)) for at, to in moved)
        return all(a is not None and b is not None and np.array_equal(a, b) for a, b in pairs)


def moved_together(
    wrong: Sequence[WrongWeight], known: KnownWeights, read: Callable[[str], Array]
) -> frozenset[str]:
    """Return the parameters that a file has in another order of experts, as all beside them have.

    ``read`` returns a weight of the file. It reads each that is wrong once, and none that is another's.
    """
    orders: dict[_Stack, _Order] = {}
    around: dict[_Stack, str] = {}
    moves: dict[str, dict[str, str]] = {}
    for each in wrong:
        if each.instead is not None:
            listed = _list_of(each.parameter, each.instead)
            moves.setdefault(listed, {})[each.parameter] = each.instead
            continue
        own = known.value(each.parameter)
        order = None if own is None else _order(read(each.name), own)
        if order is not None:
            stack = _Stack((each.parameter,))
            orders[stack], around[stack] = order, _holder(_holder(each.parameter))
    for listed, moved in moves.items():
        for stack in _listed(known, _holder(listed)) if listed else ():
            names = [moved.get(name, name) for name in stack.parameters]
            if moved.keys() & set(stack.parameters) and sorted(names) == sorted(stack.parameters):
                orders[stack] = tuple(map(stack.parameters.index, names))
                around[stack] = _holder(listed)
    found: set[str] = set()
    for stack, order in orders.items():
        lists = [s for s in _listed(known, around[stack]) if len(s.parameters) == len(order)]
        inside = {name for each in lists for name in each.parameters}
        rows = [_Stack((n,)) for n in known.inside(around[stack], len(order)) if n not in inside]
        beside = [*lists, *rows]
        # Rows of one chooses among matrices of the other.
        chooses = any(part.ndim == 1 for each in rows if (part := each.part(known, 0)) is not None)
        chosen = any(part.ndim > 1 for each in beside if (part := each.part(known, 0)) is not None)
        alike = (
            orders.get(each, order) == order and (each in orders or each.is_symmetric(known, order))
            for each in beside
        )
        if chooses and chosen and all(alike):
            found.update(name for each in beside for name in each.parameters)
    return frozenset(found)


def _holder(name: str) -> str:
    return name.rpartition(".")[0]


def _list_of(one: str, other: str) -> str:
    """Return the list that has two parameters in modules of its own, each by one name there; or ""."""
    first, second = one.split("."), other.split(".")
    apart = [at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]]
    if len(first) != len(second) or len(apart) != 1 or not first[apart[0]].isdecimal():
        return ""
    return ".".join(first[: apart[0]])


def _listed(known: KnownWeights, around: str) -> Collection[_Stack]:
    """Return what the lists of modules in a part have of each name, in the order of their places."""
    lists: dict[tuple[str, str], dict[int, str]] = {}
    for name in known.within(around):
        below = name.removeprefix(f"{around}.").split(".")
        at = next((n for n, each in enumerate(below) if each.isdecimal()), None)
        if at:
            key = ".".join(below[:at]), ".".join(below[at + 1 :])
            lists.setdefault(key, {})[int(below[at])] = name
    return [
        _Stack(tuple(places[at] for at in sorted(places)))
        for places in lists.values()
        if len(places) > 1
    ]


def _order(array: Array, own: Array) -> _Order | None:
    """Return which row of ``own`` each row of an array is, ``None`` where that is not one order of all."""
    if array.shape != own.shape and array.T.shape == own.shape:
        array = array.T
    if array.shape != own.shape or not castable(own.dtype, array.dtype):
        return None
    own = cast_to(own, array.dtype)
    places = {np.ascontiguousarray(row).tobytes(): at for at, row in enumerate(own)}
    order = tuple(places.get(np.ascontiguousarray(row).tobytes(), -1) for row in array)
    return order if sorted(order) == list(range(len(own))) else None
