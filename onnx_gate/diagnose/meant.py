"""What a constant may have to be, of what its operator reads beside it and of what PyTorch makes there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from onnx_gate.runtimes.base import Array

# A mask has two numbers, and one that lets some through by a share a few more.
_LEVELS = 4
# The number that somebody wrote has the fewest digits.
_DIGITS = (1, 2, 3, 5, 8)


def levels_meant(
    node: onnx.NodeProto, name: str, value: Array, feeds: Mapping[str, Array], expected: Array
) -> Iterator[tuple[float, float, Array]]:
    """Yield what a constant of few different numbers may have to be, as a mask that is added is.

    With the first of its numbers that is another one then, and that one.
    """
    levels = np.unique(value) if value.dtype.kind == "f" else value.reshape(-1)[:0]
    if not 0 < levels.size <= _LEVELS or len(node.input) != 2 or len(feeds) != 2:
        return
    place = list(node.input).index(name)
    other = np.asarray(feeds[node.input[1 - place]], np.float64)
    with np.errstate(all="ignore"):
        solved = _solved(node.op_type, place, other, np.asarray(expected, np.float64))
        if solved is None or np.broadcast_shapes(value.shape, solved.shape) != solved.shape:
            return
        whole = np.broadcast_to(value, solved.shape)
        meant = np.array([np.median(solved[whole == level]) for level in levels])
        usual = np.abs(expected).mean(where=np.isfinite(expected))
        same = np.isclose(meant, levels, rtol=1e-4, atol=1e-4 * usual)
    first = int(np.argmin(same))
    for digits in _DIGITS:
        right = np.where(same, levels, [float(f"{each:.{digits}g}") for each in meant])
        array = right.astype(value.dtype)[np.searchsorted(levels, value)]
        yield float(levels[first]), float(right[first]), array


def numbers_meant(
    node: onnx.NodeProto, name: str, value: Array, feeds: Mapping[str, Array], expected: Array
) -> Iterator[Array]:
    """Yield what a small constant may have to be."""
    if value.dtype.kind == "i":
        for index in range(value.size):
            for step in (1, -1, 2, -2):
                other = value.copy()
                other.reshape(-1)[index] += step
                yield other
        for other in (-value, *(np.roll(value, n) for n in range(1, value.size))):
            yield np.asarray(other)
        return
    if value.dtype.kind != "f" or value.size != 1:
        return
    place = list(node.input).index(name)
    with np.errstate(all="ignore"):
        if node.op_type == "Clip":
            yield np.asarray([expected.max() if place == 2 else expected.min()]).reshape(
                value.shape
            )
        elif node.op_type == "Where":
            chosen = feeds[node.input[0]] == (place == 1)
            for number in np.unique(expected[np.broadcast_to(chosen, expected.shape)])[:2]:
                yield np.full(value.shape, number, value.dtype)
        elif len(node.input) == 2 and len(feeds) == 2:
            other = np.asarray(feeds[node.input[1 - place]], np.float64)
            solved = _solved(node.op_type, place, other, np.asarray(expected, np.float64))
            if solved is not None and np.isfinite(solved).any():
                middle = np.median(solved[np.isfinite(solved)])
                for digits in _DIGITS:
                    yield np.full(value.shape, float(f"{middle:.{digits}g}"), value.dtype)


def or_beyond(node: onnx.NodeProto, name: str, other: Array, feeds: Mapping[str, Array]) -> str:
    """Return ``or less``, or ``or more``, where a limit clips nothing here: each beyond agrees as well."""
    if node.op_type != "Clip":
        return ""
    clipped = feeds[node.input[0]]
    if list(node.input).index(name) == 2:
        return " or more" if (clipped <= other).all() else ""
    return " or less" if (clipped >= other).all() else ""


def _solved(op_type: str, place: int, other: Array, expected: Array) -> Array | None:
    """Return for each element which number in the constant's place makes PyTorch's of the other."""
    if other.shape != expected.shape:
        return None
    if op_type == "Mul":
        return np.asarray(expected / other)
    if op_type == "Add":
        return np.asarray(expected - other)
    if op_type == "Div":
        return np.asarray(other / expected if place else expected * other)
    if op_type == "Sub":
        return np.asarray(other - expected if place else expected + other)
    if op_type == "Pow" and place:
        return np.asarray(np.log(expected) / np.log(other))
    return None
