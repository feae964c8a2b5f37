"""Faults of what is stored: weights of another checkpoint, another layout, another precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import Edits, FaultSite, Seeding, replaced
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.graph.edit import with_input
from onnx_gate.runtimes.base import Array

_RECURRENT = ("LSTM", "GRU", "RNN")


def product_weights(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """Yield the operands of a product that are stored matrices or kernels."""
    for operand, name in enumerate(node.input[: 3 if node.op_type in _RECURRENT else 2]):
        if graph.is_float(name) and len(graph.dims(name) or ()) > 1:
            yield operand


def stored_values(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """Yield the operands that are stored and of more than one element."""
    for operand, name in enumerate(node.input):
        if graph.is_float(name) and graph.count(name) > 1:
            yield operand


def _square(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    for operand in product_weights(graph, node):
        dims = graph.dims(node.input[operand]) or ()
        if dims[-1] == dims[-2] and dims[-1] != 1:
            yield operand


def _biases(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    operands = (0, 1) if node.op_type == "Add" else (3,) if node.op_type in _RECURRENT else (2,)
    for operand in operands:
        if operand >= len(node.input) or not graph.is_float(node.input[operand]):
            continue
        rank = 2 if node.op_type in _RECURRENT else 1  # one row for each direction
        vector = len(graph.dims(node.input[operand]) or ()) == rank
        if vector and graph.count(node.input[operand]) > 1:
            yield operand


def _alike(graph: FlatGraph, node: onnx.NodeProto) -> Iterator[int]:
    """A weight with a later one of its shape."""
    for operand in product_weights(graph, node):
        if _next_alike(graph, node, operand) is not None:
            yield operand


def _next_alike(graph: FlatGraph, node: onnx.NodeProto, operand: int) -> tuple[int, int] | None:
    name, own = node.input[operand], graph.producer[next(filter(None, node.output))]
    for later in graph.nodes[own.index + 1 :]:
        # In one body each can read what the other does.
        if later.op_type == own.op_type and later.within is own.within:
            for other in product_weights(graph, later.proto):
                candidate = later.proto.input[other]
                if candidate != name and graph.dims(candidate) == graph.dims(name):
                    return later.index, other
    return None


def _changed(words: str, change: Callable[[Array, float, np.random.Generator], Array]) -> Edits:
    """Return an edit that changes a constant; what becomes of it in between may be wider."""

    def edit(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
        array = graph.array(graph.nodes[site.index].proto.input[site.operand])
        with np.errstate(all="ignore"):
            new = change(array, site.size, random)
        return replaced(graph, site, new, words.format(size=site.size))

    return edit


def _noise(array: Array, size: float, random: np.random.Generator) -> Array:
    # In place: one weight may be a large part of what the machine has.
    changed: Array = random.standard_normal(array.shape)
    changed *= size
    changed += 1
    changed *= array
    return changed


def element_off(array: Array, size: float, random: np.random.Generator) -> Array:
    """Return a copy with one element larger by the share ``size``."""
    return _times(array, int(random.integers(array.size)), 1 + size)


def _largest_clipped(array: Array, size: float, random: np.random.Generator) -> Array:
    return _times(array, int(np.abs(array).argmax()), size)


def _times(array: Array, index: int, factor: float) -> Array:
    copy = array.copy()
    copy.flat[index] = float(copy.flat[index]) * factor
    return copy


def _round_trip(dtype: Any) -> Callable[[Array, float, np.random.Generator], Array]:
    def change(array: Array, size: float, random: np.random.Generator) -> Array:
        narrow: Array = array.astype(dtype)
        return narrow

    return change


def _to_levels(array: Array, size: float, random: np.random.Generator) -> Array:
    """Return the nearest of ``size`` levels that are even around zero, one scale a tensor."""
    step = float(np.abs(array).max()) / (size // 2) or 1.0
    levels: Array = np.divide(array, step, dtype=np.float64)
    np.round(levels, out=levels)
    levels *= step
    return levels


def _without_channel(array: Array, size: float, random: np.random.Generator) -> Array:
    copy = array.copy()
    if array.ndim > 2:
        copy[-1] = 0
    else:
        copy[..., -1] = 0
    return copy


def _exchange(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    first = graph.nodes[site.index].proto
    other = _next_alike(graph, first, site.operand)
    assert other is not None
    second = graph.nodes[other[0]].proto
    mine, theirs = first.input[site.operand], second.input[other[1]]
    return Edit(
        "its weight and the next one of the same shape are exchanged",
        nodes={
            site.index: (with_input(first, site.operand, theirs),),
            other[0]: (with_input(second, other[1], mine),),
        },
        same=bool(np.array_equal(graph.array(mine), graph.array(theirs))),
    )


def _statistics(graph: FlatGraph, node: onnx.NodeProto) -> Iterable[int]:
    return (4,) if len(node.input) > 4 and graph.is_float(node.input[4]) else ()


def _exchange_statistics(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    node = graph.nodes[site.index].proto
    new = with_input(with_input(node, 3, node.input[4]), 4, node.input[3])
    return Edit("mean and variance are exchanged", nodes={site.index: (new,)})


SEEDINGS = {
    "weight-transposed": Seeding(
        _square, _changed("its weight is transposed", lambda a, size, random: a.swapaxes(-1, -2))
    ),
    "weight-stale": Seeding(
        product_weights, _changed("each element of its weight is off by {size:g} of itself", _noise)
    ),
    "weights-exchanged": Seeding(_alike, _exchange),
    "bias-dropped": Seeding(
        _biases, _changed("its bias is left out", lambda a, size, random: np.zeros_like(a))
    ),
    "bias-rolled": Seeding(
        _biases,
        _changed("the elements of its bias are one off", lambda a, size, random: np.roll(a, 1)),
    ),
    "element-off": Seeding(
        stored_values,
        _changed("one element of what it stores is off by {size:.0%} of itself", element_off),
    ),
    "largest-clipped": Seeding(
        product_weights,
        _changed("the largest element of its weight is clipped to {size:.0%}", _largest_clipped),
    ),
    "channel-missing": Seeding(
        product_weights, _changed("the last channel of its weight is zero", _without_channel)
    ),
    "statistics-exchanged": Seeding(_statistics, _exchange_statistics),
    "variance-unbiased": Seeding(
        _statistics,
        _changed("its variance is 512/511 of what it was", lambda a, s, random: a * (512 / 511)),
    ),
    "weight-float16": Seeding(
        product_weights, _changed("its weight went through float16", _round_trip(np.float16))
    ),
    "weight-bfloat16": Seeding(
        product_weights,
        _changed("its weight went through bfloat16", _round_trip(ml_dtypes.bfloat16)),
    ),
    "weight-int8": Seeding(
        product_weights, _changed("its weight was rounded to {size:g} levels", _to_levels)
    ),
}
