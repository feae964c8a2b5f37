"""The sizes at which a dynamic dimension is tested that the manifest gives none: by what it is.

What a dimension is shows in the shapes and dtypes of the inputs that have it. Its name, and its
input's, are a hint only where these leave it open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from onnx_gate.manifest.dimensions import is_computed, names_of
from onnx_gate.manifest.spec import DEFAULT_SIZES
from onnx_gate.manifest.values.inputs import InputSpec

Role = Literal["batch", "count", "positions", "frames", "pixels", "samples"]


@dataclass(frozen=True)
class RoleSizes:
    """``crossed`` are combined with the sizes of other dimensions, ``once`` is tried by itself.

    Several dimensions of one role take the sizes of ``once`` in turn, so that they differ.
    """

    crossed: tuple[int, ...]
    once: tuple[int, ...]


# 1 is what streaming and single requests have, and what squeeze() trips over. 17 is beyond the 16
# that code compares with, 64 is what windows, chunks and buckets of relative positions divide or
# exceed. Networks over images halve their sides up to five times, so 32 and 64 fit what 1, 2 and 7
# pixels do not; 47 and 61 fit no halving at all. Encoders of speech begin with a stride of 320 and
# see 400 samples at least.
SIZES: Mapping[Role, RoleSizes] = {
    "batch": RoleSizes(DEFAULT_SIZES, (17, 19, 23)),
    "count": RoleSizes(DEFAULT_SIZES, (17, 19, 23)),
    "positions": RoleSizes(DEFAULT_SIZES, (64, 65, 66)),
    "frames": RoleSizes((16, 64), (101, 103, 107)),
    "pixels": RoleSizes((32, 64), (47, 61, 53)),
    "samples": RoleSizes((1600, 4000), (2401, 2403, 2407)),
}

# Where two inputs say different things of one dimension, the first of these is believed.
_STRENGTH: tuple[Role, ...] = ("samples", "pixels", "positions", "frames", "batch", "count")
_COLOURS = (3, 4)
_BATCH = re.compile(r"(.*_)?(batch|bsz?)(_.*)?", re.I)
_POSITIONS = re.compile(r"(^|_)(seq|len|length|token|time|t|past|step)", re.I)
_FRAMES = re.compile(r"(^|_)frames?($|_|[0-9])", re.I)
_PIXELS = re.compile(r"(^|_)(h|w|height|width|rows|cols|side)($|_|[0-9])", re.I)
_SAMPLES = re.compile(r"sample|wave|audio|speech|signal|pcm|^input_values$", re.I)


def default_sizes(inputs: Mapping[str, InputSpec]) -> dict[str, tuple[int, ...]]:
    """Return the sizes that each dynamic dimension is tested at where the manifest names none."""
    return {name: SIZES[role].crossed for name, role in roles(inputs).items()}


def names_batch(dim: str) -> bool:
    """Return whether a dimension says of itself that it is a batch's."""
    return _BATCH.fullmatch(dim) is not None


def batches(inputs: Mapping[str, InputSpec]) -> frozenset[str]:
    """Return the dimensions that are a batch's; where time comes first, the one that is called so."""
    found = frozenset(d for d, role in roles(inputs).items() if role == "batch")
    return frozenset(filter(names_batch, found)) or found


def batch_axes(inputs: Mapping[str, InputSpec]) -> dict[str, int]:
    """Return the axis of each input that is the batch's: the one of a few, as a square's are none."""
    dims = batches(inputs)
    found = {n: [i for i, dim in enumerate(s.shape) if dim in dims] for n, s in inputs.items()}
    return {name: axes[0] for name, axes in found.items() if len(axes) == 1}


def roles(inputs: Mapping[str, InputSpec]) -> dict[str, Role]:
    """Return what each dynamic dimension of the inputs is."""
    leading = {spec.shape[0] for spec in inputs.values() if spec.shape}
    seen: dict[str, set[Role]] = {}
    for name, spec in inputs.items():
        for axis, dim in enumerate(spec.shape):
            if is_computed(dim):
                for each in names_of(dim):
                    seen.setdefault(each, set()).add(
                        "positions" if _POSITIONS.search(each) else "count"
                    )
            elif isinstance(dim, str):
                batch = names_batch(dim) or leading == {dim}
                role = "batch" if batch else _role(name, spec, axis, dim)
                seen.setdefault(dim, set()).add(role)
    return {dim: next(r for r in _STRENGTH if r in kinds) for dim, kinds in seen.items()}


def _role(name: str, spec: InputSpec, axis: int, dim: str) -> Role:
    """Return what a dimension that is no batch is, by its place in one input."""
    rank, last = len(spec.shape), axis == len(spec.shape) - 1
    sides = _sides(spec)
    if axis in sides:
        return "pixels"
    if "float" in spec.dtype:
        if last and (_SAMPLES.search(dim) or _SAMPLES.search(name)):
            return "samples"
        if rank == 5 and sides and axis == sides[0] - 1:
            return "frames"
        if rank == 3 and axis == 1 and isinstance(spec.shape[2], int):
            return "frames" if _FRAMES.search(dim) else "positions"
        if rank == 3 and last and isinstance(spec.shape[1], int):
            return "frames"
    elif rank == 2 and last:
        return "frames" if _FRAMES.search(dim) else "positions"
    return "positions" if _POSITIONS.search(dim) else "count"


def _sides(spec: InputSpec) -> tuple[int, ...]:
    """Return the axes that are the sides of an image, of [N, C, H, W], [N, H, W, C] and the like."""
    rank = len(spec.shape)
    if not ("float" in spec.dtype or spec.dtype == "uint8") or rank not in (3, 4, 5):
        return ()
    channels_last = isinstance(spec.shape[-1], int)
    axes = (rank - 3, rank - 2) if channels_last else (rank - 2, rank - 1)
    height, width = (spec.shape[axis] for axis in axes)
    channels = spec.shape[-1 if channels_last else min(rank - 3, 1)]
    names = [side for side in (height, width) if isinstance(side, str)]
    if not names or not isinstance(channels, int):
        return ()
    if any(map(_PIXELS.search, names)):
        return axes
    # Points have three coordinates, and attention [batch, heads, queries, keys].
    if channels_last or any(map(_POSITIONS.search, names)):
        return ()
    if len(names) == 1:  # lines of text, or spectrograms: of one height
        return axes if rank > 3 and not _SAMPLES.search(names[0]) else ()
    if height == width:
        return axes if channels in _COLOURS else ()
    return axes if rank > 3 or channels in _COLOURS else ()
