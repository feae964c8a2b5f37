"""Masks: inputs that say yes or no of each position, drawn as padding and as anything else.

A mask is drawn in one of four ways, which the cases of a suite go through in turn: padded behind,
arbitrary bits, nothing masked, padded in front. What is wrong with padding only, or where nothing
is masked, shows then in the default suites. Whether True keeps a position or hides it is known from
the name at best; the ways are the same for both, but for which of them has the padding in front.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import FLOATS, Stream, draw, is_mask, numpy_dtype
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes, concrete

Way = Literal["behind", "bits", "none", "in front"]
WAYS: tuple[Way, ...] = ("behind", "bits", "none", "in front")

_MASK = re.compile(r"mask|padding", re.I)
# nn.Transformer's src_key_padding_mask is True at padding; attention_mask is 1 at what counts.
_HIDES = re.compile(r"(^|_)pad(ding)?(_|$)", re.I)


def draw_inputs(
    inputs: Mapping[str, InputSpec], sizes: Sizes, key: tuple[object, ...], law: str, number: int
) -> dict[str, Array]:
    """Return an array for each input; ``number`` is the case's in its suite."""
    return {
        name: draw_input(name, at_sizes(spec, sizes), sizes, Stream(*key, name), law, number)
        for name, spec in inputs.items()
    }


def draw_input(
    name: str, spec: InputSpec, sizes: Sizes, source: Stream, law: str, number: int
) -> Array:
    """Return an array for one input: a mask in the way whose turn it is, else random numbers."""
    shape = concrete(spec, sizes)
    if not masks_positions(name, spec):
        return draw(spec, shape, source, law)
    way = WAYS[number % len(WAYS)]
    if way == "bits":
        bits = draw(InputSpec("bool", spec.shape), shape, source)
    else:
        bits = _kept(shape, source, way) != (_HIDES.search(name) is not None)
    mask: Array = bits.astype(numpy_dtype(spec.dtype))
    return mask


def masks_positions(name: str, spec: InputSpec) -> bool:
    """Return whether an input is a mask along a dynamic last dimension, as [batch, seq] is."""
    yes_or_no = is_mask(spec) or (
        spec.dtype in FLOATS and spec.range == (0.0, 1.0) and _MASK.search(name) is not None
    )
    return yes_or_no and len(spec.shape) > 1 and isinstance(spec.shape[-1], str)


def _kept(shape: tuple[int, ...], source: Stream, way: Way) -> npt.NDArray[np.bool_]:
    """Return which positions are not padding: in every row but the first a random number of them.

    The first is whole where there is another row, as the longest of a batch is. No row is padding
    from end to end.
    """
    length, rows = shape[-1], int(np.prod(shape[:-1], dtype=np.int64))
    number = np.full(rows, length, dtype=np.int64)
    if way != "none" and length > 1:
        number = 1 + (source.words(rows) % np.uint64(length - 1)).astype(np.int64)
        number[: rows > 1] = length
    positions = np.arange(length)
    if way == "in front":
        positions = positions[::-1]
    kept: npt.NDArray[np.bool_] = positions < number[:, None]
    return kept.reshape(shape)
