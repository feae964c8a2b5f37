"""How small an error would have been refused: of one element, one row, one channel.

Of the least protected one, so that it holds wherever a file is wrong. For criteria that limit each
element (``auto``, ``atol`` and ``rtol``, ``max_ulp``) it follows from the limits; criteria of a whole
output (``cosine``, ``snr_db``, ``top1``, ``mismatch``, a metric) are given faults of growing size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.manifest import Tolerance
from onnx_gate.numerics.compare import compare
from onnx_gate.report.model.check import Resolution, Unseen
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.criteria import Metric, fixed_criteria
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import GROUPS, VISIBLE, Floats, Mask, Noise
from onnx_gate.verify.reference.answers import FEW

# Elements that a resolution is taken from.
_LOOKED_AT = 1 << 22
# By how much the largest of sixteen normal moves is larger than the largest of four, in the mean. A
# file that is wrong is judged by all runs, and the resolution of one that is not taken from the first.
_GROWTH = 1.42
# Relative errors that criteria of a whole output are tried with.
_TRIED = (1e-6, 1e-5, 1e-4, 1e-3, VISIBLE, 0.1, 1.0)
# Criteria of a whole output.
_OVERALL = ("cosine", "snr_db", "top1", "topk")
# A slice that resolves so much less than the usual one is named.
_APART = 10.0


def resolution_of(
    expected: Array, noise: Noise | None, tolerance: Tolerance, metric: Metric | None
) -> Resolution | None:
    """Return the smallest relative errors that would have been refused wherever they are.

    Infinite where none of up to 100 % would be; ``None`` where the output does not vary, so that
    there is nothing for it to be wrong about.
    """
    finite = expected[np.isfinite(expected.astype(np.float64))]
    if not finite.size or (finite == finite[0]).all():
        return None
    found = []
    limits = _limits(expected, noise, tolerance)
    if limits is not None:
        found.append(_of_limits(expected, limits.reshape(expected.shape)))
    overall = metric is not None or tolerance.mismatch or _names(tolerance, _OVERALL)
    if overall:
        trials = _Trials(expected, tolerance, metric)
        found.append(trials.resolution(blind=limits is None))
    return _finest(found) if found else None


def _names(tolerance: Tolerance, keys: Sequence[str]) -> bool:
    return any(getattr(tolerance, key) is not None for key in keys)


def _finest(found: Sequence[Resolution]) -> Resolution:
    """Return what all of several criteria resolve, which is what one of them does."""
    first, *others = sorted(found, key=lambda each: each.element)
    for other in others:
        first = first.model_copy(
            update={
                "row": _less(first.row, other.row),
                "channel": _less(first.channel, other.channel),
            }
        )
    return first


def _less(a: float | None, b: float | None) -> float | None:
    return min((each for each in (a, b) if each is not None), default=None)


def _limits(expected: Array, noise: Noise | None, tolerance: Tolerance) -> Floats | None:
    """Return by how much each element may be off, ``None`` where nothing limits each."""
    found = []
    size = np.abs(expected.reshape(-1).astype(np.float64))
    if noise is not None:
        while len(noise.runs) < FEW and noise.more():
            pass
        if noise.runs:
            grown = _GROWTH if len(noise.runs) < GROUPS[-1] else 1.0
            noise = noise.of(noise.expected, noise.runs)
            moves = noise.terms.factor * noise.moves(slice(None))
            found.append(noise.limits(slice(None)) + (grown - 1) * moves)
    if (tolerance.atol is not None or tolerance.rtol is not None) and not tolerance.mismatch:
        found.append((tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * size)
    if tolerance.max_ulp is not None and is_floating(expected.dtype):
        step = np.spacing(expected.reshape(-1)) if expected.dtype.kind == "f" else size / 256
        found.append(tolerance.max_ulp * np.abs(step.astype(np.float64)))
    return np.asarray(np.min(found, axis=0), np.float64) if found else None


def _of_limits(expected: Array, limits: Floats) -> Resolution:
    """Take the limits on the scale of what would be wrong.

    That of an element is itself, or what is usual among its own kind, if that is more: the least root
    mean square of the slices that it lies in. A slice that is off by a factor is refused where one of
    its elements is, and known to be where half of them would.
    """
    wide, limits = _looked_at(expected), _looked_at(limits)
    sizes = np.abs(wide.astype(np.float64))
    good = np.isfinite(sizes)
    sizes[~good] = 0.0
    usual = np.full(sizes.shape, np.inf)
    for axis in range(sizes.ndim):
        np.minimum(usual, np.sqrt(_across(np.square(sizes), axis, np.mean)), out=usual)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        single = np.where(good & (usual > 0), limits / np.maximum(sizes, usual), 0.0)
        own = np.where(good & (sizes > 0), limits / sizes, np.nan)
    row = channel = None
    if own.ndim > 1:
        row = _largest(np.nanmedian(_filled(own, own.ndim - 1), axis=-1))
        lines = (np.moveaxis(own, axis, 0).reshape(own.shape[axis], -1) for axis in _channels(own))
        channel = max(_largest(np.nanmedian(_filled(line, 1), axis=1)) for line in lines)
    found = Resolution(element=float(single.max()), row=row, channel=channel)
    return _with_least(found, single, sizes)


def _looked_at(array: Array) -> Array:
    if array.size <= _LOOKED_AT:
        return array
    table = array.reshape(-1, array.shape[-1])
    return table[: max(1, _LOOKED_AT // table.shape[1])]


def _across(array: Floats, axis: int, of: Callable[..., Floats]) -> Floats:
    """Return a number of each slice along an axis, in a shape that spreads over the array."""
    others = tuple(each for each in range(array.ndim) if each != axis)
    return of(array, axis=others, keepdims=True)


def _channels(array: Floats) -> range:
    return range(1, array.ndim)


def _filled(own: Floats, axis: int) -> Floats:
    """Return an array in which what is zero throughout a slice, and resolves nothing, is 0."""
    return np.where(np.isnan(own).all(axis=axis, keepdims=True), 0.0, own)


def _largest(values: Floats) -> float:
    return float(np.max(values, initial=0.0))


def _with_least(found: Resolution, single: Floats, sizes: Floats) -> Resolution:
    """Name the slice that resolves far less than the usual one, along the axis that tells most."""
    most = _APART
    for axis in range(single.ndim):
        worst = _across(single, axis, np.max).reshape(-1)
        usual = float(np.median(worst))
        far = worst > _APART * usual
        if worst.size > 2 and usual > 0 and worst.max() > most * usual:
            most, index = float(worst.max() / usual), int(np.argmax(worst))
            scale = np.sqrt(_across(np.square(sizes), axis, np.mean)).reshape(-1)
            found = found.model_copy(
                update={
                    "others": float(worst[~far].max()),
                    "axis": axis,
                    "index": index,
                    "more": int(np.count_nonzero(far)) - 1,
                    "size": float(scale[index] / (np.median(scale) or 1.0)),
                }
            )
    return found


@dataclass(frozen=True)
class _Trials:
    """Faults of growing size, of the element, row and channel that count least, until one is refused."""

    expected: Array
    tolerance: Tolerance
    metric: Metric | None

    def resolution(self, *, blind: bool) -> Resolution:
        """Return what is refused; where nothing else limits each element, ``blind`` to what."""
        wide = self.expected.astype(np.float64)
        wide[~np.isfinite(wide)] = 0.0
        slices = [_least(wide, axis) for axis in _channels(wide)]
        channel = max((self._finest(wide, wide * each) for each in slices), default=None)
        row = None
        inside = slices[-1] if slices else np.ones(wide.shape, np.bool_)
        if wide.ndim > 1:
            lines = _least(wide.reshape(-1, wide.shape[-1]), 0).reshape(wide.shape)
            row = self._finest(wide, wide * lines)
        one = np.zeros(wide.size)
        one[int(np.argmax(np.abs(wide * inside)))] = np.abs(wide * inside).max()
        element = self._finest(wide, one.reshape(wide.shape))
        unseen: list[Unseen] = []
        if blind and any(not self._refuses(wide - 2 * wide * each) for each in slices):
            unseen.append("one channel negated")
        first = self.tolerance.topk.k if self.tolerance.topk is not None else None
        if blind and wide.ndim > 1 and self._differs(turned := _turned(wide, first)):
            unseen += ["the order reversed"] if not self._refuses(turned) else []
        return Resolution(element=element, row=row, channel=channel, unseen=tuple(unseen))

    def _finest(self, wide: Floats, error: Floats) -> float:
        return next((s for s in _TRIED if self._refuses(wide + s * error)), math.inf)

    def _differs(self, wide: Floats) -> bool:
        difference = compare(wide, self.expected.astype(np.float64))
        return difference.rms > VISIBLE * difference.expected_rms

    def _refuses(self, wide: Floats) -> bool:
        expected = self.expected
        wide = np.rint(wide) if expected.dtype.kind in "iub" else wide
        wrong = np.where(np.isfinite(expected.astype(np.float64)), wide, expected)
        actual = wrong.astype(expected.dtype)
        criteria = fixed_criteria(
            actual, expected, compare(actual, expected), self.tolerance, self.metric, 1
        )
        return not all(each.holds for each in criteria)


def _turned(wide: Floats, first: int | None) -> Floats:
    """Return rows whose ``first`` largest entries, or all, have each other's values in reverse."""
    ranks = np.argsort(-wide, axis=-1, kind="stable")[..., :first]
    turned = wide.copy()
    values = np.take_along_axis(wide, ranks, axis=-1)
    np.put_along_axis(turned, ranks, values[..., ::-1], axis=-1)
    return turned


def _least(wide: Floats, axis: int) -> Mask:
    """Return where the slice along an axis is that has the least to say, but not nothing."""
    energy = _across(np.square(wide), axis, np.sum)
    least = np.min(energy, where=energy > 0, initial=math.inf)
    place = np.zeros(energy.size, np.bool_)
    place[int(np.argmax(energy.reshape(-1) == least))] = True
    return np.broadcast_to(place.reshape(energy.shape), wide.shape)
