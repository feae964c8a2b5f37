"""Experts that have changed places together with the rows of what chooses among them: the same model.

A router gives each expert a row, and weights of experts lie in a stack, one behind the other. A file may
have them in another order, if all have it: then each row chooses the expert that it did. What the inputs
reach need not show it, and one of them in another order than the rest stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.wrong_weight import WrongWeight


def moved_together(
    wrong: Sequence[WrongWeight], known: KnownWeights, read: Callable[[str], Array]
) -> frozenset[str]:
    """Return the parameters of which a file has the rows in another order, as all beside them have.

    ``read`` returns a weight of the file. It reads each that is wrong once.
    """
    orders: dict[str, Sequence[int]] = {}
    for each in wrong:
        own = known.value(each.parameter)
        order = None if own is None else _order(read(each.name), own)
        if order is not None:
            orders[each.parameter] = order
    found: set[str] = set()
    for parameter, order in orders.items():
        around = parameter.rpartition(".")[0].rpartition(".")[0]
        beside = {name: known.value(name) for name in known.inside(around, len(order))}
        # Rows of one chooses among matrices of the other.
        axes = {min(own.ndim, 3) for own in beside.values() if own is not None}
        if {2, 3} <= axes and all(
            orders.get(name, order) == order and (name in orders or _is_symmetric(own, order))
            for name, own in beside.items()
        ):
            found.update(beside)
    return frozenset(found)


def _order(array: Array, own: Array) -> Sequence[int] | None:
    """Return which row of ``own`` each row of an array is, ``None`` where that is not one order of all."""
    if array.shape != own.shape and array.T.shape == own.shape:
        array = array.T
    if array.shape != own.shape or array.dtype != own.dtype:
        return None
    places = {np.ascontiguousarray(row).tobytes(): at for at, row in enumerate(own)}
    order = [places.get(np.ascontiguousarray(row).tobytes(), -1) for row in array]
    return order if sorted(order) == list(range(len(own))) else None


def _is_symmetric(own: Array | None, order: Sequence[int]) -> bool:
    """Return whether rows in another order are the same ones, as those of a bias of zeros are."""
    return own is not None and np.array_equal(own[list(order)], own)
