"""Random arrays that are the same on every platform and with every version of NumPy.

NumPy keeps the raw output of a bit generator stable, but not what ``Generator`` makes of it, and
the C library's ``log`` and ``exp`` differ between platforms in the last bit. So everything here
is made from Philox's raw 64-bit words by integer arithmetic and IEEE additions and multiplications.
"""

from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array

Float64 = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

_LOG2_E = 1.4426950408889634
# Taylor coefficients of 2**x about 0: ln(2)**n / n!, good to 1e-11 on [-0.5, 0.5].
_EXP2 = (
    1.0,
    0.6931471805599453,
    0.24022650695910072,
    0.05550410866482158,
    0.009618129107628477,
    0.0013333558146428443,
    0.0001540353039338161,
    1.5252733804059841e-05,
    1.3215486790144309e-06,
    1.0178086009239699e-07,
)

FLOATS = ("float16", "bfloat16", "float32", "float64")


class Stream:
    """A stream of numbers that depends on nothing but its key."""

    def __init__(self, *key: object) -> None:
        digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, count: int) -> Words:
        """Return ``count`` uniform 64-bit words."""
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)

    def uniform(self, count: int) -> Float64:
        """Return ``count`` numbers in [0, 1), multiples of 2**-53."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> Float64:
        """Return ``count`` numbers of mean 0 and variance 1, within ±4.9.

        The sum of eight uniform 16-bit numbers (Irwin-Hall, n = 8), which is exact.
        """
        parts = self.words(2 * count).view(np.uint16).reshape(count, 8)
        total = parts.sum(axis=1, dtype=np.int64)
        centred: Float64 = (2 * total - 8 * 65535).astype(np.float64)
        # The variance of a uniform integer in [0, m) is (m**2 - 1) / 12; doubled and summed.
        return centred / float(np.sqrt(4 * 8 * (65536.0**2 - 1) / 12))

    def integers(self, count: int, low: int, high: int) -> list[int] | Words:
        """Return ``count`` uniform words reduced to ``[0, high - low]``."""
        span = high - low + 1
        words = self.words(count)
        return words if span >= 2**64 else words % np.uint64(span)


def exp(values: Float64) -> Float64:
    """Return e**values to about 1e-10, bit for bit the same on every platform."""
    scaled = values * _LOG2_E
    whole = np.rint(scaled)
    rest = scaled - whole
    result = np.full_like(rest, _EXP2[-1])
    for coefficient in reversed(_EXP2[:-1]):
        result = result * rest + coefficient
    return np.ldexp(result, whole.astype(np.int32))


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Return the NumPy dtype of a manifest's dtype; bfloat16 is ``ml_dtypes.bfloat16``."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def draw(spec: InputSpec, shape: tuple[int, ...], source: Stream, law: str = "normal") -> Array:
    """Return an array of ``spec``'s dtype and of ``shape``, within ``spec``'s range.

    ``law`` is ``normal``, ``uniform`` or ``lognormal``, and means something for floating-point
    inputs only: integers are uniform over their range, booleans even. Without a range, normal has
    mean 0 and variance 1, uniform is over [-1, 1), lognormal is the exponential of normal. With
    one, normal is centred in it with a sixth of its width as standard deviation, lognormal starts
    at its lower end, and both are clipped to it.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if spec.dtype == "bool":
        return mixed((source.words(count) & np.uint64(1)).astype(np.bool_).reshape(shape))
    if spec.dtype not in FLOATS:
        array = _draw_integers(spec, shape, count, source)
        return mixed(array) if is_mask(spec) else array
    values = source.uniform(count) if law == "uniform" else source.normal(count)
    if law == "lognormal":
        values = exp(values)
    if spec.range is not None:
        low, high = spec.range
        if law == "uniform":
            values = low + (high - low) * values
        elif law == "lognormal":
            values = low + (high - low) / 8 * values
        else:
            values = (low + high) / 2 + (high - low) / 6 * values
        values = np.clip(values, low, high)
    elif law == "uniform":
        values = 2 * values - 1
    return to_dtype(values, spec, shape)


def mixed(array: Array) -> Array:
    """Make every row of a mask hold both values, where it has room for two.

    A row that masks everything, or nothing, is an edge of its own: attention over nothing at all
    has no meaning that two implementations could agree about.
    """
    if array.ndim == 0 or array.shape[-1] < 2 or array.size == 0:
        return array
    alike = np.all(array == array[..., :1], axis=-1)
    array[..., -1] = np.where(alike, 1 - array[..., 0].astype(np.int8), array[..., -1])
    return array


def is_drawable(spec: InputSpec) -> bool:
    """Return whether values may be drawn: integers without a range come from the user alone."""
    return spec.has_range or spec.dtype in (*FLOATS, "bool")


def is_mask(spec: InputSpec) -> bool:
    """Return whether an input can only hold yes and no."""
    return spec.dtype == "bool" or (spec.dtype not in FLOATS and spec.range == (0, 1))


def to_dtype(values: Float64, spec: InputSpec, shape: tuple[int, ...]) -> Array:
    """Round float64 ``values`` to ``spec``'s dtype; nothing that was finite overflows."""
    dtype = numpy_dtype(spec.dtype)
    limit = float(ml_dtypes.finfo(dtype).max)
    finite = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)
    return finite.reshape(shape).astype(dtype)


def _draw_integers(spec: InputSpec, shape: tuple[int, ...], count: int, source: Stream) -> Array:
    assert spec.range is not None
    low, high = int(spec.range[0]), int(spec.range[1])
    words = np.asarray(source.integers(count, low, high), dtype=np.uint64)
    with np.errstate(over="ignore"):
        shifted = words + np.uint64(low % 2**64)
    dtype = np.dtype(spec.dtype)
    wide = shifted if dtype.kind == "u" else shifted.view(np.int64)
    return wide.astype(dtype).reshape(shape)
