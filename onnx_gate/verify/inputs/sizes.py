"""The sizes at which dynamic dimensions are tested, and which of them are cheap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.dimensions import size_of, value_of
from onnx_gate.manifest.roles import SIZES, roles

Sizes = Mapping[str, int]

# Above this many combinations each size of each dimension appears, but not with all the others.
FULL_PRODUCT = 9

# A larger size is tried as far as it is cheap: up to this many elements of inputs (a batch of 85
# rows of 768 numbers), or half as many again as the largest combination that is tried anyhow. It is
# a count and no time that decides, so that every machine tries the same sizes.
CHEAP_ELEMENTS = 2**16
CHEAP_SHARE = 1.5

# A sweep of so many steps still shows where a function bends.
ENOUGH_ELEMENTS = 256


def combinations(dims: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """Return the sizes to test: the cross product where it is small, else each size once.

    Without dynamic dimensions that is one empty combination. In the second case row ``i`` takes
    the ``i``-th size of the first dimension, the ``i + 1``-th of the second and so on, so that
    the smallest sizes do not all meet in one row; and the last row has as many dimensions as can
    be of one size, which none of the others need have: ``if height == width`` is true in it.
    """
    names = list(dims)
    if math.prod(len(dims[name]) for name in names) <= FULL_PRODUCT:
        return tuple(
            dict(zip(names, sizes, strict=True))
            for sizes in itertools.product(*(dims[name] for name in names))
        )
    longest = max(len(dims[name]) for name in names)
    rows = [
        {name: dims[name][(row + shift) % len(dims[name])] for shift, name in enumerate(names)}
        for row in range(longest)
    ]
    alike = _alike(dims)
    return tuple(rows if alike in rows else [*rows, alike])


def _alike(dims: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return a combination in which as many dimensions as can be have one size, a small one."""
    left = dict(dims)
    chosen: dict[str, int] = {}
    while left:
        every = set().union(*left.values())
        shared = {size: sum(size in sizes for sizes in left.values()) for size in every}
        size = min(shared, key=lambda each: (-shared[each], each < 2, each))
        taken = [name for name, sizes in left.items() if size in sizes]
        chosen |= dict.fromkeys(taken, size)
        left = {name: sizes for name, sizes in left.items() if name not in taken}
    return {name: chosen[name] for name in dims}


def larger(spec: ModelSpec) -> tuple[dict[str, int], ...]:
    """Return the combinations that are tried once: one for each kind of dimension, as is cheap.

    The dimensions of a kind that the manifest gives no sizes have a larger one there (an odd one,
    for images), all others their smallest.
    """
    kinds = {d: role for d, role in roles(spec.inputs).items() if d in spec.dims}
    usual = max(elements(spec.inputs, sizes) for sizes in combinations(spec.dims))
    limit = max(CHEAP_ELEMENTS, CHEAP_SHARE * usual)
    rows: list[dict[str, int]] = []
    for role, sizes in SIZES.items():
        free = [d for d in spec.dims if kinds.get(d) == role and d not in spec.named_dims]
        row = {d: _small(spec.dims[d], kinds.get(d)) for d in spec.dims}
        row |= dict(zip(free, itertools.cycle(sizes.once)))
        if free and elements(spec.inputs, row) <= limit:
            rows.append(row)
    return tuple(rows)


def tried_sizes(spec: ModelSpec) -> tuple[dict[str, int], ...]:
    """Return every combination of sizes at which the model is tested."""
    return (*combinations(spec.dims), *larger(spec))


def cheapest(spec: ModelSpec, example: Sizes) -> Sizes:
    """Return the cheapest sizes at which the values of an input can show something.

    Those of the example, which ``forward`` takes, but no open length beyond the tested ones, and of a batch
    a single one, or as many of the tested ones as it takes to have elements enough.
    """
    batch = [dim for dim, role in roles(spec.inputs).items() if role == "batch" and dim in example]
    tested = {dim: max(spec.dims[dim]) for dim in example if dim not in spec.named_dims}
    short = {dim: min(size, tested.get(dim, size)) for dim, size in example.items()}
    sizes = short
    for size in sorted({s for dim in batch for s in spec.dims[dim] if s}):
        sizes = {**short, **dict.fromkeys(batch, size)}
        if elements(spec.inputs, sizes) >= ENOUGH_ELEMENTS:
            break
    return sizes


def _small(sizes: Sequence[int], role: str | None) -> int:
    least = 1 if role == "batch" else 2
    return min((size for size in sizes if size >= least), default=max(sizes))


def elements(inputs: Mapping[str, InputSpec], sizes: Sizes) -> int:
    """Return how many elements all inputs have together at some sizes."""
    return sum(math.prod(concrete(spec, sizes)) for spec in inputs.values())


def concrete(spec: InputSpec, sizes: Sizes) -> tuple[int, ...]:
    """Return ``spec``'s shape with names, and what is computed from them, replaced by sizes."""
    return tuple(size_of(dim, sizes) for dim in spec.shape)


def at_sizes(spec: InputSpec, sizes: Sizes) -> InputSpec:
    """Return ``spec`` with the range that it has at some sizes, its lower end where it holds none."""
    if spec.bounds is None:
        return spec
    low, high = (value_of(end, sizes) for end in spec.bounds)
    return replace(spec, range=(low, max(low, high)), bounds=None)


def sizes_label(sizes: Sizes) -> str:
    """Return ``batch=2,seq=16``."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
