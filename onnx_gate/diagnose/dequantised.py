"""How a weight that is stored in few bits came to be another one: scale, zero point, axis or numbers.

Whatever is tried has to bring every number of the weight to within a step of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from torch import nn

from onnx_gate.diagnose.blame.weights import told_of_weight, weights_of
from onnx_gate.diagnose.localize.faulty import WrongConstant
from onnx_gate.graph.packed import packed_weight
from onnx_gate.graph.walk import attribute
from onnx_gate.report.story.summary import distinct_digits
from onnx_gate.runtimes.base import Array
from onnx_gate.text import listed, number

# Rounding leaves half a step, and a scale that is fitted to rounded numbers is off by some of another.
_STEP = 0.75
# Quotients of one scale by another are one that are no further apart.
_SAME = 1e-2


@dataclass(frozen=True)
class _Stored:
    """Numbers with the scale and the zero point that they have along an axis, or in blocks of it."""

    numbers: Array
    scale: Array
    zero: Array
    axis: int
    block: int = 0

    def spread(self, each: Array) -> Array | None:
        """Return what a scale or a zero point is for each number, ``None`` where it has no place."""
        shape, axis = self.numbers.shape, self.axis
        if each.size == 1:
            return np.broadcast_to(each.reshape(()), shape)
        if self.block:
            whole = np.repeat(each, self.block, axis)
            whole = whole.take(np.arange(min(whole.shape[axis], shape[axis])), axis)
            return whole if whole.shape == shape else None
        if each.ndim != 1 or shape[axis] != each.size:
            return None
        return np.broadcast_to(
            each.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
        )

    def off(self, right: Array) -> Array | None:
        """Return which numbers are not PyTorch's, beyond what rounding leaves."""
        scale, zero = self.spread(self.scale), self.spread(self.zero)
        if scale is None or zero is None:
            return None
        made = (self.numbers - zero) * scale
        with np.errstate(all="ignore"):
            near = np.abs(made - right) <= _STEP * np.abs(scale) + 1e-6 * np.abs(right)
        return np.asarray(~near)

    def is_right(self, right: Array) -> bool:
        """Return whether all numbers are PyTorch's but for rounding."""
        off = self.off(right)
        return off is not None and not off.any()

    def mean(self, each: Array) -> Array:
        """Return the mean over the numbers that share a scale, one for each scale."""
        if self.scale.size == 1:
            return np.asarray(each.mean()).reshape(self.scale.shape)
        if not self.block:
            return np.asarray(np.moveaxis(each, self.axis, 0).reshape(self.scale.size, -1).mean(1))
        starts = np.arange(0, each.shape[self.axis], self.block)
        counts = np.diff([*starts, each.shape[self.axis]])
        shape = [-1 if i == self.axis else 1 for i in range(each.ndim)]
        return np.asarray(np.add.reduceat(each, starts, self.axis) / counts.reshape(shape))


def told_of_constant(
    wrong: WrongConstant,
    node: onnx.NodeProto,
    feeds: Mapping[str, Array],
    module: nn.Module,
    against: str,
) -> str:
    """Say what became of a weight that ``node`` makes of the constants among ``feeds``, or reads."""
    names = listed(wrong.of, len(wrong.of))
    what = f"the weight {names}" if wrong.is_held else f"the weight made of {names}"
    why = _told_of_dequantised(node, feeds, wrong.right, against)
    if why:
        return f"{what} is another one behind {node.op_type}: {why}"
    if wrong.is_held:
        return told_of_weight(wrong.own, wrong.right, names, module)
    off = np.count_nonzero(~np.isclose(wrong.own, wrong.right, rtol=1e-5, atol=1e-7))
    return f"{what} is another one in the file, in {off} of {wrong.own.size} numbers"


def _told_of_dequantised(
    node: onnx.NodeProto, feeds: Mapping[str, Array], right: Array, against: str
) -> str:
    """Return in what a DequantizeLinear's weight is not PyTorch's ``right``, empty for another node."""
    stored = _stored(node, feeds)
    if stored is None or stored.numbers.shape != right.shape:
        return ""
    expected = right.astype(np.float64)
    if stored.is_right(expected):
        kind = feeds[node.input[0]].dtype.name
        return f"it is rounded to {kind} there, by {number(float(np.abs(stored.scale).max()) / 2)} at most"
    found, off = _meant(stored, expected, against), stored.off(expected)
    if found or off is None:
        return found
    return f"{np.count_nonzero(off)} of {off.size} numbers are not {against}'s, beyond rounding"


def told_of_packed(
    node: onnx.NodeProto, feeds: Mapping[str, Array], module: nn.Module, within: str, against: str
) -> str:
    """Say what became of a weight that a ``node`` packs with itself, empty where it is right.

    And where nothing is known by which it would be. It is one of the part ``within`` the module.
    """
    stored = _stored(node, feeds)
    held = {n: a for n, a in weights_of(module).items() if n.rpartition(".")[0] == within}
    if stored is None or node.op_type == "DequantizeLinear":
        return ""
    for name, own in held.items():
        for right in (own, own.T) if own.ndim == 2 else ():
            if right.shape == stored.numbers.shape:
                expected = right.astype(np.float64)
                if stored.is_right(expected):
                    return ""
                found = _meant(stored, expected, against)
                if found:
                    return f"the weight {name} is another one in {node.op_type}: {found}"
    return ""


def _meant(stored: _Stored, right: Array, against: str) -> str:
    """Return what of a weight is another one, and with another value of which it is right."""
    others = _others(stored, right, against)
    return next((told for told, other in others if other.is_right(right)), "")


def _stored(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> _Stored | None:
    packed = packed_weight(node, feeds)
    if packed is None:
        return _read(node, feeds)
    numbers, scale, zero = (
        each.astype(np.float64) for each in (packed.numbers, packed.scale, packed.zero)
    )
    return _Stored(numbers, scale, zero, 1, packed.block)


def _read(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> _Stored | None:
    names = [name for name in node.input if name]
    if node.op_type != "DequantizeLinear" or any(name not in feeds for name in names):
        return None
    numbers, scale, *rest = (np.asarray(feeds[name]) for name in names)
    zero = rest[0] if rest else np.zeros(scale.shape)
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    axis = axis % numbers.ndim if numbers.ndim else 0
    numbers, scale, zero = (each.astype(np.float64) for each in (numbers, scale, zero))
    return _Stored(numbers, scale, zero, axis, block)


def _others(stored: _Stored, right: Array, against: str) -> Iterator[tuple[str, _Stored]]:
    """Yield what may be meant, with what to say where it is right."""
    agrees = f"it agrees with {against}"
    if stored.scale.size > 1:
        for axis in range(stored.numbers.ndim):
            if axis != stored.axis:
                told = f"it has axis={stored.axis}, and with {axis} {agrees}"
                yield told, replace(stored, axis=axis)
    if stored.numbers.shape[-1] % 2 == 0:
        pairs = stored.numbers.reshape(*stored.numbers.shape[:-1], -1, 2)[..., ::-1]
        told = (
            f"its numbers have changed places two by two, as halves of a byte do: put back {agrees}"
        )
        yield told, replace(stored, numbers=pairs.reshape(stored.numbers.shape))
    scale, zero, off = stored.spread(stored.scale), stored.spread(stored.zero), stored.off(right)
    if scale is None or zero is None or off is None:
        return
    wrong = stored.mean(off.astype(np.float64)) > 0
    with np.errstate(all="ignore"):
        moved = np.rint(stored.mean(stored.numbers - right / scale))
        moved = np.where(wrong & np.isfinite(moved), moved, stored.zero) + 0.0  # no -0
        yield _told("zero point", stored.zero, moved, against), replace(stored, zero=moved)
        numbers = stored.numbers - zero
        fitted = stored.mean(right * numbers) / stored.mean(numbers * numbers)
        fitted = np.where(wrong & (fitted > 0), fitted, stored.scale)
        yield _told("scale", stored.scale, fitted, against), replace(stored, scale=fitted)


def _told(what: str, own: Array, right: Array, against: str) -> str:
    """Say which scales or zero points are others: one or one ratio of all, or how many."""
    own = np.broadcast_to(own, right.shape)
    apart = np.flatnonzero(own != right)
    if not apart.size:
        return ""
    has, meant = distinct_digits(float(own.flat[apart[0]]), float(right.flat[apart[0]]), 3)
    if len({*own.flat}) == len({*right.flat}) == 1:
        return f"its {what} is {has}, and with {meant} it agrees with {against}"
    with np.errstate(all="ignore"):
        ratios = own / right
    if apart.size == right.size and np.allclose(ratios, ratios.flat[0], rtol=_SAME, atol=0):
        return f"its {what}s are {float(ratios.mean()):.3g} times {against}'s"
    return f"{apart.size} of {right.size} {what}s are not {against}'s, the first {has} in place of {meant}"
