"""How a weight that is stored in few bits came to be another one: scale, zero point, axis or numbers.

Whatever is tried has to bring every number of the weight to within a step of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
import torch
from torch import nn

from onnx_gate.diagnose.blame.reordered import reordered
from onnx_gate.diagnose.blame.weights import told_of_weight, weights_of
from onnx_gate.diagnose.localize.faulty import WrongConstant
from onnx_gate.graph.short import ShortWeight, short_weight
from onnx_gate.report.story.summary import distinct_digits
from onnx_gate.runtimes.base import Array
from onnx_gate.text import listed, number

# Rounding leaves half a step, and a scale that is fitted to rounded numbers is off by some of another.
_STEP = 0.75
# Quotients of one scale by another are one that are no further apart.
_SAME = 1e-2


def _off(weight: ShortWeight, right: Array) -> Array | None:
    """Return which numbers are not PyTorch's, beyond what rounding leaves."""
    widened = weight.widened()
    if widened is None:
        return None
    made, step = widened
    with np.errstate(all="ignore"):
        near = np.abs(made - right) <= _STEP * step + 1e-6 * np.abs(right)
    return np.asarray(~near)


def _is_right(weight: ShortWeight, right: Array) -> bool:
    """Return whether all numbers are PyTorch's but for rounding."""
    off = _off(weight, right)
    return off is not None and not off.any()


def _mean(weight: ShortWeight, each: Array) -> Array:
    """Return the mean over the numbers that share a scale, one for each scale."""
    if weight.scale.size == 1:
        return np.asarray(each.mean()).reshape(weight.scale.shape)
    if not weight.block:
        return np.asarray(np.moveaxis(each, weight.axis, 0).reshape(weight.scale.size, -1).mean(1))
    starts = np.arange(0, each.shape[weight.axis], weight.block)
    counts = np.diff([*starts, each.shape[weight.axis]])
    shape = [-1 if i == weight.axis else 1 for i in range(each.ndim)]
    return np.asarray(np.add.reduceat(each, starts, weight.axis) / counts.reshape(shape))


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
        return told_of_weight(wrong.own, wrong.right, _in_file(wrong.name, module) or names, module)
    if wrong.instead:
        others = listed(wrong.instead, len(wrong.instead))
        return f"the file has what is made of {others} where what is made of {names} belongs"
    moved = reordered(wrong.own, wrong.right)
    if moved is not None:
        return f"{what} is in another order in the file: {moved.sentence()}"
    off = np.count_nonzero(~np.isclose(wrong.own, wrong.right, rtol=1e-5, atol=1e-7))
    return f"{what} is another one in the file, in {off} of {wrong.own.size} numbers"


def _in_file(name: str, module: nn.Module) -> str:
    """Return the name of what a module computes of its tensors, empty for one of them, or of none.

    A normalised weight may be equal to the direction that it is made of, which no file has.
    """
    path, _, leaf = name.rpartition(".")
    parts = dict(module.named_modules())
    made = path in parts and isinstance(getattr(parts[path], leaf, None), torch.Tensor)
    return name if made and name not in module.state_dict() else ""


def _told_of_dequantised(
    node: onnx.NodeProto, feeds: Mapping[str, Array], right: Array, against: str
) -> str:
    """Return in what a DequantizeLinear's weight is not PyTorch's ``right``, empty for another node."""
    stored = _stored(node, feeds)
    if stored is None or stored.stored.shape != right.shape:
        return ""
    expected = right.astype(np.float64)
    if _is_right(stored, expected):
        kind = feeds[stored.names[0]].dtype.name
        return f"it is rounded to {kind} there, by {number(float(np.abs(stored.scale).max()) / 2)} at most"
    found, off = _meant(stored, expected, against), _off(stored, expected)
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
            if right.shape == stored.stored.shape:
                expected = right.astype(np.float64)
                if _is_right(stored, expected):
                    return ""
                found = _meant(stored, expected, against)
                if found:
                    return f"the weight {name} is another one in {node.op_type}: {found}"
    return ""


def _meant(stored: ShortWeight, right: Array, against: str) -> str:
    """Return what of a weight is another one, and with another value of which it is right."""
    others = _others(stored, right, against)
    return next((told for told, other in others if _is_right(other, right)), "")


def _stored(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> ShortWeight | None:
    weight = short_weight(node, {name: np.asarray(array) for name, array in feeds.items()})
    return None if weight is None else weight.unpacked()


def _others(stored: ShortWeight, right: Array, against: str) -> Iterator[tuple[str, ShortWeight]]:
    """Yield what may be meant, with what to say where it is right."""
    agrees = f"it agrees with {against}"
    if stored.scale.size > 1:
        for axis in range(stored.stored.ndim):
            if axis != stored.axis:
                told = f"it has axis={stored.axis}, and with {axis} {agrees}"
                yield told, replace(stored, axis=axis)
    if stored.stored.shape[-1] % 2 == 0:
        pairs = stored.stored.reshape(*stored.stored.shape[:-1], -1, 2)[..., ::-1]
        told = (
            f"its numbers have changed places two by two, as halves of a byte do: put back {agrees}"
        )
        yield told, replace(stored, stored=pairs.reshape(stored.stored.shape))
    scale, zero, off = stored.spread(stored.scale), stored.spread(stored.zero), _off(stored, right)
    if scale is None or zero is None or off is None:
        return
    wrong = _mean(stored, off.astype(np.float64)) > 0
    with np.errstate(all="ignore"):
        moved = np.rint(_mean(stored, stored.stored - right / scale))
        moved = np.where(wrong & np.isfinite(moved), moved, stored.zero) + 0.0  # no -0
        yield _told("zero point", stored.zero, moved, against), replace(stored, zero=moved)
        numbers = stored.stored - zero
        fitted = _mean(stored, right * numbers) / _mean(stored, numbers * numbers)
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
