"""Faults of what a deployed model is fed: the graph is right, and the code around it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.fault import Edits, FaultSite, Seeding
from onnx_gate.audit.graph import FlatGraph, GraphInput
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import FLOATS, is_mask
from onnx_gate.verify.inputs.masks import masks_positions

_CHANNELS = 3
# Below this a range of integers is that of classes or segments, and none of a vocabulary.
_VOCABULARY = 64
# What ImageNet's images are normalised with, by torchvision: the mean of three channels.
_MEAN, _DEVIATION = 0.449, 0.226


def _image_axis(each: GraphInput) -> int | None:
    """The axis of an image's channels; ``None`` for what is no image in colours."""
    shape = each.spec.shape
    if len(shape) < 3 or each.spec.dtype not in (*FLOATS, "uint8"):
        return None
    if len(shape) > 3 and shape[1] == _CHANNELS:
        return 1
    if len(shape) == 3 and shape[0] == _CHANNELS:
        return 0
    return len(shape) - 1 if shape[-1] == _CHANNELS else None


def _images(graph: FlatGraph, each: GraphInput) -> Iterable[int]:
    axis = _image_axis(each)
    return () if axis is None else (axis,)


def _float_images(graph: FlatGraph, each: GraphInput) -> Iterable[int]:
    return _images(graph, each) if each.spec.dtype in FLOATS else ()


def _sequences(graph: FlatGraph, each: GraphInput) -> Iterable[int]:
    """A mask of positions that another input has beside it."""
    if not masks_positions(each.declared, each.spec):
        return ()
    alike = [o for o in graph.fed if o is not each and o.spec.shape == each.spec.shape]
    return (0,) if alike else ()


def _masks(graph: FlatGraph, each: GraphInput) -> Iterable[int]:
    return (0,) if is_mask(each.spec) or masks_positions(each.declared, each.spec) else ()


def _tokens(graph: FlatGraph, each: GraphInput) -> Iterable[int]:
    spec = each.spec
    wide = spec.range is not None and spec.range[1] - spec.range[0] >= _VOCABULARY
    return (0,) if wide and not spec.dtype.startswith(("float", "bfloat")) else ()


def _caches(graph: FlatGraph, each: GraphInput) -> Iterable[int]:
    """The axis of positions of a cache: the dynamic one of four that is not the first."""
    named = each.declared.rpartition(".")[2] in ("key", "value") or "past" in each.declared
    dynamic = [i for i, size in enumerate(each.spec.shape) if i and isinstance(size, str)]
    return dynamic[:1] if named and len(each.spec.shape) > 2 else ()


def _fed(words: str, change: Callable[[Array, FaultSite, GraphInput], Array]) -> Edits:
    """Return an edit that changes one input's array."""

    def edit(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
        each = graph.fed[site.index]

        def feed(arrays: Mapping[str, Array]) -> dict[str, Array]:
            fed = dict(arrays)
            with np.errstate(all="ignore"):
                new = change(arrays[each.name], site, each)
            fed[each.name] = np.ascontiguousarray(new).astype(arrays[each.name].dtype, copy=False)
            return fed

        return Edit(words.format(name=each.declared, size=site.size), feed=feed)

    return edit


def _reversed(array: Array, site: FaultSite, each: GraphInput) -> Array:
    return np.flip(array, site.operand)


def _unscaled(array: Array, site: FaultSite, each: GraphInput) -> Array:
    """Return the pixels as they were before they were scaled, or normalised."""
    if site.size > 1:
        return array * site.size
    raw: Array = array * _DEVIATION + _MEAN
    return raw


def _moved(array: Array, site: FaultSite, each: GraphInput) -> Array:
    """Return an image whose pixels are taken a share of a pixel further on, as a resize does."""
    axes = [a for a in range(array.ndim) if a != site.operand][-2:]
    moved = array.astype(np.float64)
    for axis in axes:
        last = moved.shape[axis] - 1
        following = np.take(moved, np.minimum(np.arange(last + 1) + 1, last), axis)
        moved = (1 - site.size) * moved + site.size * following
    return moved


def _next_token(array: Array, site: FaultSite, each: GraphInput) -> Array:
    low, high = each.spec.range or (0, 1)
    shifted: Array = (array - int(low) + int(site.size)) % int(high - low + 1) + int(low)
    return shifted


def _ones(array: Array, site: FaultSite, each: GraphInput) -> Array:
    hides = "pad" in each.declared.lower()
    return np.full_like(array, 0 if hides else 1)


def _rolled(array: Array, site: FaultSite, each: GraphInput) -> Array:
    return np.roll(array, 1, site.operand)


def _other_side(graph: FlatGraph, site: FaultSite, random: np.random.Generator) -> Edit:
    """Move the padding of every row to its other end, with all that is beside it."""
    mask = graph.fed[site.index]
    shape = mask.spec.shape
    beside = [each.name for each in graph.fed if each.spec.shape == shape]
    hides = "pad" in mask.declared.lower()

    def feed(arrays: Mapping[str, Array]) -> dict[str, Array]:
        fed = dict(arrays)
        kept = arrays[mask.name].astype(bool) != hides
        # Whether a row counts is a stable order: what is padding goes to the front.
        order = np.argsort(kept, axis=-1, kind="stable")
        for name in beside:
            fed[name] = np.take_along_axis(arrays[name], order, -1)
        return fed

    return Edit(f"{', '.join(beside)} are padded in front", feed=feed)


SEEDINGS = {
    "channels-reversed": Seeding(_images, _fed("{name} is fed as BGR, not RGB", _reversed)),
    "normalisation-missing": Seeding(
        _float_images, _fed("{name} is fed before its normalisation (by {size:g})", _unscaled)
    ),
    "resized-otherwise": Seeding(
        _float_images, _fed("{name} is moved by {size:g} of a pixel", _moved)
    ),
    "padding-side": Seeding(_sequences, _other_side),
    "mask-whole": Seeding(_masks, _fed("{name} hides nothing", _ones)),
    "cache-shifted": Seeding(_caches, _fed("{name} is one position off", _rolled)),
    "tokens-shifted": Seeding(_tokens, _fed("the numbers in {name} are {size:g} off", _next_token)),
}
