"""Parameters of stock layers of which a file has a part alone, or something else that nothing explains.

Of weights that only look like nothing known no finding says so: forward may make anything of parameters.
A stock layer uses its own as they are; what its node reads in the place of one that is nowhere in the file
is meant to be that one. It is a warning all the same, as a scale may have been moved from layer to layer.

Of vectors it may be a cut: biases are, and lists may lack what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.weight_bits import largest_difference
from onnx_gate.verify.inspect.wrong_weight import WrongWeight

# Of a vector that is full of one number, so many places are looked at.
_TRIED = 8


def replaced(
    read_by: Collection[tuple[str, str]],
    known: KnownWeights,
    unexplained: Iterable[str],
    held: Collection[str],
    read: Callable[[str], Array],
) -> Iterator[WrongWeight]:
    """Yield the one parameter of its form that a layer has for a weight, and that is not ``held``.

    ``read_by`` are the weights and the parameters of the stock layers that read them. What is near to the
    parameter, as rounding to fewer bits leaves it, is left to the tolerance, and so is what a norm may be
    folded into.
    """
    for name in unexplained:
        array = read(name)
        meant = [
            (own, ways[0])
            for weight, own in read_by
            if weight == name and {*known.names(own)}.isdisjoint(held)
            if (ways := _turned(known, array, own))
        ]
        if len(meant) != 1 or known.foldable(array):
            continue
        ((own, turned),) = meant
        if known.meant(array, own) is None:
            yield known.wrong(name, turned, own)


def parts_alone(
    cuts: Mapping[str, Sequence[str]], known: KnownWeights, read: Callable[[str], Array]
) -> Iterator[WrongWeight]:
    """Yield weights that are rows of a parameter, where all of these together are fewer than it has."""
    for own, names in cuts.items():
        whole, parts = known.value(own), [read(name) for name in names]
        if whole is None or sum(part.size for part in parts) >= whole.size:
            continue
        rows = {row.tobytes() for part in parts for row in part.astype(whole.dtype)}
        absent = tuple(i for i, row in enumerate(whole) if row.tobytes() not in rows)
        for name in names:
            yield WrongWeight(name, own, 0.0, absent, len(whole), absent=True)


def _turned(known: KnownWeights, array: Array, own: str) -> list[Array]:
    """Return a weight as a parameter of its form has it, the nearer first where that is square."""
    expected = known.value(own)
    if expected is None:
        return []
    ways = [each for each in (array, array.T)[: array.ndim] if each.shape == expected.shape]
    return sorted(ways, key=lambda each: largest_difference(each, expected))


def cut_of(array: Array, known: KnownWeights) -> str | None:
    """Return the vector of which a weight has some of the numbers, in a row, and not all."""
    flat = array.reshape(-1)
    if flat.size < max(array.shape):
        return None
    for name in known.vectors():
        own = known.value(name)
        if own is None or own.dtype != flat.dtype or own.size <= flat.size:
            continue
        starts = np.flatnonzero(own[: own.size - flat.size + 1] == flat[0])[:_TRIED]
        if any(np.array_equal(own[at : at + flat.size], flat) for at in starts):
            return name
    return None


def has_all(parts: Iterable[Array], own: Array | None) -> bool:
    """Return whether each number of a vector is in one of its parts."""
    held = np.concatenate([part.reshape(-1) for part in parts])
    return own is not None and bool(np.isin(own, held).all())
