"""Weights in few bits, with the scales and zero points that widen them, where nodes keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx

from onnx_gate.graph.walk import attribute
from onnx_gate.runtimes.base import Array

_ALL = slice(None)
# Where nodes have a weight, its scale and its zero point, and along which axis these lie.
_PLACES: Mapping[str, tuple[int, int, int, int]] = {
    "DequantizeLinear": (0, 1, 2, 1),
    "QLinearMatMul": (3, 4, 5, -1),
    "QLinearConv": (3, 4, 5, 0),
    "QGemm": (3, 4, 5, -1),
    "DynamicQuantizeMatMul": (1, 2, 3, -1),
    "MatMulIntegerToFloat": (1, 3, 5, -1),
}
# What has weights in few bits, as far as is known here.
WIDENED = frozenset((*_PLACES, "MatMulNBits"))


@dataclass(frozen=True)
class ShortWeight:
    """Numbers with the scale and the zero point that they have along an axis, or in blocks of it.

    ``names`` are those of the tensors, the numbers' first. With ``bits`` the numbers are packed as ONNX
    Runtime's ``MatMulNBits`` has them, ``[rows, blocks, bytes of a block]`` for rows of ``shape[1]``.
    """

    names: tuple[str, ...]
    stored: Array
    scale: Array
    zero: Array
    shape: tuple[int, ...]
    axis: int
    block: int = 0
    bits: int = 0

    def numbers(self, rows: slice = _ALL) -> Array:
        """Return the numbers of some rows."""
        if not self.bits:
            return self.stored[rows]
        return _unpacked(self.stored[rows], self.bits)[:, : self.shape[1]]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The least and the largest of its own numbers, beyond which others may have been cut."""
        if self.bits:
            return 0.0, 2.0**self.bits - 1
        return float(self.stored.min()), float(self.stored.max())

    def spread(self, each: Array, rows: slice = _ALL) -> Array | None:
        """Return what a scale or a zero point is for each number of some rows, ``None`` without a place."""
        shape = (len(range(*rows.indices(self.shape[0]))), *self.shape[1:]) if self.shape else ()
        if each.size == 1:
            return np.broadcast_to(each.reshape(()), shape)
        if not shape:
            return None
        axis, at = self.axis, np.arange(self.shape[self.axis]) // max(self.block, 1)
        if not self.block and each.ndim == 1:
            each = each.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        # A scale for each number along its axis, or block of them, and for all or for each of the others.
        fits = each.ndim == len(shape) and all(
            size == at[-1] + 1 if i == axis else size in (1, self.shape[i])
            for i, size in enumerate(each.shape)
        )
        if not fits:
            return None
        if axis and len(each) > 1:
            each = each[rows]
        return np.broadcast_to(each.take(at if axis else at[rows], axis), shape)

    def widened(self, rows: slice = _ALL) -> tuple[Array, Array] | None:
        """Return the numbers that some rows come to and the step of each, ``None`` without a place."""
        scale, zero = self.spread(self.scale, rows), self.spread(self.zero, rows)
        if scale is None or zero is None:
            return None
        with np.errstate(all="ignore"):
            numbers = self.numbers(rows).astype(np.float32)
            return (numbers - zero.astype(np.float32)) * scale.astype(np.float32), np.abs(scale)

    def unpacked(self) -> ShortWeight:
        """Return it with its numbers side by side, in float64."""
        numbers = self.numbers()
        numbers, scale, zero = (x.astype(np.float64) for x in (numbers, self.scale, self.zero))
        return replace(self, stored=numbers, scale=scale, zero=zero, bits=0)


def short_weight(node: onnx.NodeProto, stored: Mapping[str, Array]) -> ShortWeight | None:
    """Return the weight that ``stored`` has of a node, ``None`` where another node is given."""
    if node.op_type == "MatMulNBits":
        return _of_blocks(node, stored)
    if node.op_type not in _PLACES:
        return None
    *places, axis = _PLACES[node.op_type]
    names = [node.input[at] for at in places if len(node.input) > at and node.input[at]]
    if any(name not in stored for name in names) or len(names) < 2:
        return None
    numbers, scale = stored[names[0]], stored[names[1]]
    zero = stored[names[2]] if len(names) > 2 else np.zeros(scale.shape, np.float32)
    axis = attribute(node, "axis", axis)
    if attribute(node, "transB", 0):
        axis = 0
    axis = axis % numbers.ndim if numbers.ndim else 0
    block = attribute(node, "block_size", 0)
    return ShortWeight(tuple(names), numbers, scale, zero, numbers.shape, axis, block)


def _of_blocks(node: onnx.NodeProto, stored: Mapping[str, Array]) -> ShortWeight | None:
    """Return the weight of ``MatMulNBits``; groups of an order of their own (``g_idx``) have no blocks."""
    names = [name for name in node.input[1:4] if name]
    indexed = len(node.input) > 4 and bool(node.input[4])
    if indexed or len(names) < 2 or any(name not in stored for name in names):
        return None
    bits, block = attribute(node, "bits", 4), attribute(node, "block_size", 32)
    size, packed = attribute(node, "K", 0), stored[names[0]]
    if bits not in (2, 4, 8) or min(block, size, packed.size) < 1 or packed.ndim < 2:
        return None
    rows, blocks = len(packed), -(-size // block)
    if packed.size * 8 // bits < rows * size:
        return None
    zero = np.full((rows, blocks), 2.0 ** (bits - 1), np.float32)
    if len(names) > 2:
        given = stored[names[2]].reshape(rows, -1)
        zero = _unpacked(given, bits)[:, :blocks] if given.dtype == np.uint8 else given
    scale = stored[names[1]].reshape(rows, blocks)
    return ShortWeight(tuple(names), packed, scale, zero, (rows, size), 1, block, bits)


def _unpacked(packed: Array, bits: int) -> Array:
    """Return the numbers of each row, of which a byte has several, the first in its lowest bits."""
    flat = packed.reshape(len(packed), -1)
    parts = [flat >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(packed), -1).astype(np.float32)
