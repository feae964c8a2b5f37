"""The inputs of a model as tensors: caches taken apart, and sizes and ranges that must be possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx_gate.manifest.dimensions import is_computed, names_of, size_of, value_of
from onnx_gate.manifest.nesting import cache_tensors
from onnx_gate.manifest.values.inputs import CacheEntry, InputSpec
from onnx_gate.text import did_you_mean, quote


def expanded(entries: Mapping[str, InputSpec | CacheEntry]) -> dict[str, InputSpec]:
    """Return every tensor of the inputs, those of a cache by dotted names."""
    inputs: dict[str, InputSpec] = {}
    for name, entry in entries.items():
        if isinstance(entry, InputSpec):
            inputs[name] = entry
            continue
        for each in cache_tensors(name, entry.cache, entry.layers):
            other = entry.value_shape if each.is_value else None
            other = entry.encoder_shape if each.of_encoder else other
            inputs[each.name] = InputSpec(entry.dtype, other or entry.shape)
    return inputs


def twice(entries: Mapping[str, InputSpec | CacheEntry]) -> Iterator[tuple[str, str]]:
    """Yield inputs that are named although a cache has them."""
    for name, entry in entries.items():
        if isinstance(entry, CacheEntry):
            for each in cache_tensors(name, entry.cache, entry.layers):
                if each.name in entries:
                    yield each.name, f"{each.name} is one of the cache {name} already; remove it"


def size_problems(
    inputs: Mapping[str, InputSpec], sizes: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, str]]:
    """Yield inputs of which a computed size is below 1 where the manifest has its dimension tested."""
    for name, each in inputs.items():
        for dim in filter(is_computed, each.shape):
            for key in names_of(dim):
                low = [s for s in sizes.get(key, ()) if s and not _has_size(dim, key, s)]
                if low:
                    yield (
                        name,
                        f"{dim} is {size_of(dim, {key: low[0]})} where {key} is {low[0]}; give "
                        f"{key} larger sizes under dims",
                    )


def bounds_problems(
    inputs: Mapping[str, InputSpec], sizes: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, str]]:
    """Yield inputs whose range names no dimension of an input, or holds nothing at a tested size."""
    known = {n for each in inputs.values() for dim in each.shape for n in names_of(dim)}
    for name, each in inputs.items():
        names = [n for end in each.bounds or () for n in names_of(end)]
        unknown = next((n for n in names if n not in known), None)
        if unknown is not None:
            yield (
                name,
                f"the range names {quote(unknown)}, and no input has such a dimension"
                f"{did_you_mean(unknown, known) if known else ''}",
            )
            continue
        for key in dict.fromkeys(names):
            for size in filter(None, sizes.get(key, ())):
                if not _has_values(each, key, size):
                    low, high = (value_of(end, {key: size}) for end in each.bounds or ())
                    yield (
                        name,
                        f"the range is [{low}, {high}] where {key} is {size}, which holds nothing; "
                        f"give {key} larger sizes under dims",
                    )
                    break


def possible_sizes(
    name: str, sizes: tuple[int, ...], inputs: Mapping[str, InputSpec]
) -> tuple[int, ...]:
    """Return those of the usual sizes at which nothing that is computed from them is impossible."""
    return (
        tuple(
            size
            for size in sizes
            if all(
                _has_values(each, name, size) and all(_has_size(d, name, size) for d in each.shape)
                for each in inputs.values()
            )
        )
        or sizes
    )


def _has_size(dim: int | str, name: str, size: int) -> bool:
    """Return whether a size is at least 1; one that depends on further names is taken to be."""
    return names_of(dim) != (name,) or size_of(dim, {name: size}) >= 1


def _has_values(spec: InputSpec, name: str, size: int) -> bool:
    """Return whether the range holds something; one that depends on further names is taken to."""
    if {n for end in spec.bounds or () for n in names_of(end)} != {name}:
        return True
    low, high = (value_of(end, {name: size}) for end in spec.bounds or ())
    return low <= high
