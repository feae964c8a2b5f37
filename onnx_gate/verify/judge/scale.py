"""The scale on which an element is judged: that of its own kind.

One tensor often holds several quantities: logits beside a fill of -1e9, pixels beside
probabilities, pascals beside humidity. On one scale for all of them the largest hides everything
about the others. So the elements are parted into *strata*, and every error is taken on the root
mean square of its own stratum.

Two rules, both of which look for a gap and cut there, and neither of which cuts a continuum:

- magnitudes: where no element is between x and 1,000 x, and the elements below are closer to one
  another than that by more than chance, those above are another quantity (a sentinel, a fill, an
  outlier);
- channels (the last axis, and axis 1): where the channels' root mean squares, in order, jump by
  more than 30, those above are another quantity.

On 124 correct architectures these cost no alarm, where one scale for each channel costs 39: the
error of PyTorch itself in a channel of three elements is chance. For the same reason channels
are parted by what they held over all cases so far (``Kinds``), once each of them has held
``POOLED`` elements, and an axis whose size changes from case to case is none of channels.

The cost is one histogram of exponents and two sums of squares an output, and nothing is copied
where there is one stratum, which is nearly always.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onnx_gate.runtimes.base import Array

Mask = NDArray[np.bool_]

# A gap in magnitudes, as a power of two: about 1,000. Measured, see docs/evidence.md.
GAP_BITS = 10
# A gap between root mean squares of channels. Measured with 10 and 30 to the same effect.
CHANNEL_GAP = 30.0
# Fewer elements of a channel than this say nothing about its magnitude: a normal number is below
# a thirtieth of its standard deviation in one draw of forty, three of them in one of 50,000.
POOLED = 3
# A small quantity is one of its own where it is at least two elements and this share of all.
LOW_SHARE = 0.05
# A gap that evenly spread magnitudes leave more often than this is none.
BY_CHANCE = 1e-3
# An output that is this much smaller than usual is judged on the scale of the usual one.
USUAL_SHARE = 1e-3
# Processors and engines round subnormal numbers to zero as they like: on this scale, that of float32,
# the largest of them is one unit of rounding.
_FLUSHED = float(np.finfo(np.float32).tiny / np.finfo(np.float32).eps)
# Channels beyond these are features of a sequence or pixels of an image, not quantities.
_MOST_CHANNELS = 4096
# Larger outputs (128 MiB of float64) teach nothing about channels that the smaller cases do not.
_MOST_ELEMENTS = 1 << 24
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Stratum:
    """Elements of one kind: ``mask`` is of the output's shape, null for all of them.

    ``usual`` is the root mean square that such elements had in cases before, 0.0 where unknown.
    """

    mask: Mask | None
    usual: float = 0.0

    def of(self, array: Array) -> Array:
        """Return the elements of ``array`` in this stratum, in C order."""
        return array if self.mask is None else array[self.mask]

    def index(self, position: int) -> int:
        """Return the flat index in the output of the ``position``-th element, -1 for -1."""
        if self.mask is None or position < 0:
            return position
        return int(np.flatnonzero(self.mask.reshape(-1))[position])

    def scale(self, rms: float) -> float:
        """Return the scale of elements whose root mean square is ``rms``; never 0."""
        scale = max(rms, USUAL_SHARE * self.usual)
        return max(scale, _FLUSHED) if scale else 1.0


@dataclass
class Kinds:
    """What one output of a model held in the cases so far: its channels, and how large it is."""

    usual: float = 0.0
    _channels: dict[int, tuple[NDArray[np.float64], int]] = field(default_factory=dict)
    _seen: bool = False

    def take(self, expected: Array) -> None:
        """Learn from PyTorch's answer in a case that is not at an edge."""
        if not expected.size or expected.size > _MOST_ELEMENTS:
            return
        low = _levels(expected)[0]
        values = expected.astype(np.float64)
        values[~np.isfinite(values) if low is None else ~low] = 0.0
        squares = np.square(values, out=values)
        held = expected.size if low is None else int(np.count_nonzero(low))
        self.usual = max(self.usual, float(np.sqrt(squares.sum() / held)) if held else 0.0)
        channels = {}
        for axis in _channel_axes(expected.shape):
            others = tuple(i for i in range(expected.ndim) if i != axis)
            sums, count = squares.sum(axis=others), expected.size // expected.shape[axis]
            if self._seen:
                before = self._channels.get(axis)
                if before is None or before[0].shape != sums.shape:
                    continue
                sums, count = sums + before[0], count + before[1]
            channels[axis] = (sums, count)
        self._channels, self._seen = channels, True

    def strata(self, expected: Array) -> tuple[Stratum, ...]:
        """Part the elements of PyTorch's answer ``expected``; every element is in one stratum."""
        levels = _levels(expected)
        groups = self._groups(expected)
        strata = []
        for number, level in enumerate(levels):
            usual = self.usual if number == 0 else 0.0
            for group, group_usual in groups:
                mask = level if group is None else group if level is None else level & group
                if mask is None or mask.any():
                    strata.append(Stratum(mask, group_usual if group is not None else usual))
        return tuple(strata) or (Stratum(None, self.usual),)

    def _groups(self, expected: Array) -> list[tuple[Mask | None, float]]:
        """Return the groups of channels, each as a mask with its usual root mean square."""
        groups: list[tuple[Mask | None, float]] = [(None, self.usual)]
        for axis, (sums, count) in self._channels.items():
            if axis >= expected.ndim or expected.shape[axis] != sums.size or count < POOLED:
                continue
            shape = [1] * expected.ndim
            shape[axis] = sums.size
            labels = _gap_labels(np.sqrt(sums / count))
            parts = [
                (labels == n, float(np.sqrt(sums[labels == n].mean() / count)))
                for n in range(labels.max() + 1)
            ]
            if len(parts) > 1:
                groups = [
                    (
                        np.broadcast_to(part.reshape(shape), expected.shape)
                        if mask is None
                        else mask & part.reshape(shape),
                        usual,
                    )
                    for mask, _ in groups
                    for part, usual in parts
                ]
        return groups


def _channel_axes(shape: tuple[int, ...]) -> list[int]:
    axes = {len(shape) - 1, 1} if len(shape) > 1 else set()
    return sorted(a for a in axes if 1 < shape[a] <= _MOST_CHANNELS)


def _gap_labels(rms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number the channels by the gaps between them; a channel of zeros goes with the smallest."""
    order = np.argsort(rms, kind="stable")
    ordered = rms[order]
    jumps = (ordered[:-1] > 0) & (ordered[1:] > CHANNEL_GAP * ordered[:-1])
    labels = np.zeros(rms.size, np.int64)
    labels[order[1:]] = np.cumsum(jumps)
    return labels


def _levels(expected: Array) -> list[Mask | None]:
    """Part the elements where no magnitude is between two of them, the smallest first.

    Zeros, NaN and infinities go with the smallest.
    """
    counts = _exponents(expected)
    occupied = np.flatnonzero(counts)
    if occupied.size < 2:
        return [None]
    cuts: list[int] = []
    for below, above in itertools.pairwise(occupied.tolist()):
        start = cuts[-1] if cuts else int(occupied[0])
        if above - below > GAP_BITS and _is_quantity(counts, start, below, above):
            cuts.append(above)
    if not cuts:
        return [None]
    exponents = _exponent(expected)
    bounds = [*cuts, counts.size]
    levels: list[Mask | None] = [exponents < cuts[0]]
    for low, high in itertools.pairwise(bounds):
        levels.append((exponents >= low) & (exponents < high))
    return levels


def _is_quantity(counts: NDArray[np.int64], start: int, low: int, high: int) -> bool:
    """Return whether the elements from ``start`` to ``low`` are apart from what is at ``high``.

    A few values of a function that decays exponentially, as ``softplus``, are orders of magnitude
    apart too, by chance. If magnitudes were spread evenly, the gap above ``n`` elements whose
    spacing is ``m`` on average would be x times m with probability (1 + x / (n - 1)) ** -(n - 1):
    the ratio of one exponential spacing to the mean of n - 1 others (an F distribution with 2 and
    2 (n - 1) degrees of freedom).
    """
    count = int(counts[start : low + 1].sum())
    if count < 2 or counts[: low + 1].sum() < LOW_SHARE * counts.sum():
        return False
    spacings = count - 1
    mean = max(low - start, 1) / spacings
    return float((1 + (high - low) / mean / spacings) ** -spacings) < BY_CHANCE


# Where the exponent is in the bits of a floating-point dtype: the mantissa's width, and its own.
_FIELDS = {"float64": (52, 11), "float32": (23, 8), "float16": (10, 5), "bfloat16": (7, 8)}


def _exponent(values: Array) -> NDArray[np.int64]:
    """Return the binary exponent of each element, biased, and 0 for what has none.

    That is zero, subnormal numbers, NaN and infinities.
    """
    shift, width = _FIELDS[str(values.dtype)]
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    bits = np.ascontiguousarray(values).view(unsigned) >> unsigned.type(shift)
    exponents = (bits & unsigned.type(2**width - 1)).astype(np.int64)
    exponents[exponents == 2**width - 1] = 0
    result: NDArray[np.int64] = exponents.reshape(values.shape)
    return result


def _exponents(values: Array) -> NDArray[np.int64]:
    """Return how many elements have which exponent, block by block; those of none left out."""
    flat = values.reshape(-1)
    counts = np.zeros(2 ** _FIELDS[str(values.dtype)][1], np.int64)
    for low in range(0, flat.size, _BLOCK):
        counts += np.bincount(_exponent(flat[low : low + _BLOCK]), minlength=counts.size)
    counts[0] = 0
    return counts
