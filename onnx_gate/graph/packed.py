"""Weights in few bits as ONNX Runtime's ``MatMulNBits`` has them: ``[N, blocks, bytes of a block]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_gate.graph.walk import attribute
from onnx_gate.runtimes.base import Array


@dataclass(frozen=True)
class PackedWeight:
    """The numbers of a weight, ``[rows, K]``, with a scale and a zero point for each block of a row."""

    numbers: Array
    scale: Array
    zero: Array
    block: int


def packed_weight(node: onnx.NodeProto, stored: Mapping[str, Array]) -> PackedWeight | None:
    """Return the rows that ``stored`` has of a node's weight, ``None`` where another node is given.

    Groups of an order of their own (``g_idx``) have no blocks.
    """
    names = [name for name in node.input[1:4] if name]
    indexed = len(node.input) > 4 and bool(node.input[4])
    if node.op_type != "MatMulNBits" or indexed or any(name not in stored for name in names):
        return None
    bits, block = attribute(node, "bits", 4), attribute(node, "block_size", 32)
    size, packed = attribute(node, "K", 0), stored[names[0]]
    rows, blocks = len(packed), -(-size // block)
    zero = np.full((rows, blocks), 2.0 ** (bits - 1), np.float32)
    if len(names) > 2:
        given = stored[names[2]].reshape(rows, -1)
        zero = _unpacked(given, bits)[:, :blocks] if given.dtype == np.uint8 else given
    scale = stored[names[1]].reshape(rows, blocks)
    return PackedWeight(_unpacked(packed, bits)[:, :size], scale, zero, block)


def _unpacked(packed: Array, bits: int) -> Array:
    """Return the numbers of each row, of which a byte has several, the first in its lowest bits."""
    flat = packed.reshape(len(packed), -1)
    parts = [flat >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(packed), -1).astype(np.float32)
