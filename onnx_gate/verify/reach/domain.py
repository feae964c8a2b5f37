"""Which values an input may be given, where nobody has asked for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from onnx_gate.graph.arithmetic import MOST_LIMITS
from onnx_gate.manifest import EdgesSuite, InputSpec, ModelSpec, RandomSuite
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import FLOATS, numpy_dtype, to_dtype
from onnx_gate.verify.inputs.masks import masks_positions
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes
from onnx_gate.verify.reach.sites import MOST_ROWS

# Without a declared range, so many times the largest magnitude that was drawn is still ordinary.
BEYOND = 4.0
# Those of a whole list of limits, each with three that are next to it.
_MOST_CONSTANTS = 4 * MOST_LIMITS
_WIDEST = 2**61


@dataclass(frozen=True)
class Domain:
    """The values of one input: its spec, both ends, and the module's constants among them.

    ``constants`` are exact values of its dtype, each with its neighbours on both sides. ``drawn``:
    values may be drawn for it at any size. By ``divisors`` whole numbers are divided.
    """

    spec: InputSpec
    low: float
    high: float
    constants: tuple[float, ...]
    drawn: bool
    divisors: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool:
        """Return whether its values are floating-point numbers."""
        return self.spec.dtype in FLOATS

    @property
    def is_small(self) -> bool:
        """Return whether a batch has room for each of its values."""
        return not self.is_float and self.high - self.low < MOST_ROWS

    @property
    def ends(self) -> tuple[int, int]:
        """Return both ends of whole numbers, as floats do not hold them; sums of two stay in 64 bits."""
        low, high = self.spec.range or (self.low, self.high)
        return max(int(low), -_WIDEST), min(int(high), _WIDEST)


def domains(
    spec: ModelSpec,
    sizes: Sizes,
    hulls: Mapping[str, tuple[float, float]],
    constants: Iterable[float],
    masks: Iterable[int] = (),
    divisors: Iterable[int] = (),
) -> dict[str, Domain]:
    """Return the domain of each input whose values may be changed; bits of ``masks`` are asked for.

    A declared range is one. Of a floating-point input without one it is four times the largest
    magnitude that was drawn, or that alone where a tolerance is no multiple of rounding; where all
    of its values came from files or generators, nothing beyond what these hold. Masks are drawn in
    ways of their own.
    """
    draws = not spec.suites or any(
        isinstance(suite, RandomSuite | EdgesSuite) for suite in spec.suites.values()
    )
    # A limit in the output's own unit was chosen for the values that its owner has in mind.
    beyond = BEYOND if spec.by_rounding else 1.0
    numbers = sorted(set(constants), key=lambda value: (abs(value), value))
    known: dict[str, Domain] = {}
    for name, each in spec.inputs.items():
        at = at_sizes(each, sizes)
        if masks_positions(name, each):
            continue
        if each.dtype == "bool":
            if draws:
                known[name] = Domain(at, 0.0, 1.0, (), draws)
            continue
        if at.range is not None:
            low, high = float(at.range[0]), float(at.range[1])
        elif each.dtype in FLOATS and name in hulls and all(map(math.isfinite, hulls[name])):
            low, high = hulls[name]
            if draws:
                high = beyond * max(abs(low), abs(high))
                low = -high
        else:
            continue
        near = itertools.chain(_near(numbers, at, low, high), _flipped(masks, at, low, high))
        inside = tuple(dict.fromkeys(near))[:_MOST_CONSTANTS]
        known[name] = Domain(at, low, high, inside, draws, tuple(sorted(divisors)))
    return known


def _near(numbers: Iterable[float], spec: InputSpec, low: float, high: float) -> Iterable[float]:
    """Yield the constants within a domain, with what is next to them on either side."""
    dtype = numpy_dtype(spec.dtype)
    yielded: set[float] = set()
    for number in numbers:
        if spec.dtype in FLOATS:
            exact = to_dtype(np.asarray([number], np.float64), spec, (1,))
            step = np.asarray(max(abs(number), 1.0) / 16).astype(dtype)
            near = [exact, *_neighbours(exact), exact - step, exact + step]
            values = [float(each[0]) for each in near]
        else:
            whole = math.floor(number)
            values = [float(whole + offset) for offset in (0, -1, 1, 2)]
        for value in values:
            if low <= value <= high and value not in yielded:
                yielded.add(value)
                yield value


def _flipped(masks: Iterable[int], spec: InputSpec, low: float, high: float) -> Iterable[float]:
    """Yield each number whose bits are asked for, with any one of them flipped, and each of its bits alone.

    To a mask that has one bit less, what lacks that bit alone is another number; all others hide it.
    """
    if spec.dtype in FLOATS:
        return
    places = [1 << place for place in range(int(high).bit_length())]
    for mask in sorted(masks):
        ones = [bit for bit in places if mask & bit]
        for value in (mask, *(mask ^ bit for bit in places), *ones):
            if low <= value <= high and int(float(value)) == value:
                yield float(value)


def _neighbours(values: Array) -> list[Array]:
    """Return the next values below and above, where NumPy knows them.

    Beside 0 those whose squares are still normal: what is below the least normal number engines flush.
    """
    if values.dtype.kind != "f":
        return []
    ends = [np.asarray(end, values.dtype) for end in (-np.inf, np.inf)]
    least = np.finfo(values.dtype).smallest_normal
    near = [np.nextafter(values, end) for end in ends]
    return [np.where(abs(n) < least, np.copysign(np.sqrt(least), n), n) for n in near]
