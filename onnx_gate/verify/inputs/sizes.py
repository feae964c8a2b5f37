"""The sizes at which dynamic dimensions are tested, and those of the example of the export."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from onnx_gate.manifest import InputSpec

Sizes = Mapping[str, int]

# Above this many combinations each size of each dimension appears, but not with all the others.
FULL_PRODUCT = 9
_ENOUGH = 64


def combinations(dims: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """Return the sizes to test: the cross product where it is small, else each size once.

    Without dynamic dimensions that is one empty combination. In the second case row ``i`` takes
    the ``i``-th size of the first dimension, the ``i + 1``-th of the second and so on, so that
    the smallest sizes do not all meet in one row.
    """
    names = list(dims)
    if math.prod(len(dims[name]) for name in names) <= FULL_PRODUCT:
        return tuple(
            dict(zip(names, sizes, strict=True))
            for sizes in itertools.product(*(dims[name] for name in names))
        )
    longest = max(len(dims[name]) for name in names)
    return tuple(
        {name: dims[name][(row + shift) % len(dims[name])] for shift, name in enumerate(names)}
        for row in range(longest)
    )


def concrete(spec: InputSpec, sizes: Sizes) -> tuple[int, ...]:
    """Return ``spec``'s shape with the names replaced by their sizes."""
    return tuple(sizes[d] if isinstance(d, str) else d for d in spec.shape)


def example_candidates(
    inputs: Mapping[str, InputSpec], dims: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, int]]:
    """Yield sizes for the example of the export, the best first.

    First a prime of its own for every dimension, between its smallest and largest tested size
    and different from every fixed size, so that two dimensions cannot be confused and neither 0
    nor 1 is specialised. Models that take only certain sizes refuse that; then come the tested
    sizes themselves, distinct and above 1 where they can be.
    """
    fixed = {d for spec in inputs.values() for d in spec.shape if isinstance(d, int)}
    if not dims:
        yield {}
        return
    yield _primes(dims, fixed)
    usable = {name: [s for s in sizes if s >= 2] or list(sizes) for name, sizes in dims.items()}
    mixed = list(
        itertools.islice(itertools.product(*(reversed(sizes) for sizes in usable.values())), 512)
    )
    mixed.sort(key=lambda sizes: (-len(set(sizes)), len(fixed & set(sizes))))
    for sizes in mixed[:8]:
        yield dict(zip(usable, sizes, strict=True))
    for name in dims:
        primes = _primes({name: dims[name]}, fixed)
        others = {n: max(s) for n, s in dims.items() if n != name}
        yield {n: primes.get(n, others.get(n, 2)) for n in dims}


def _primes(dims: Mapping[str, Sequence[int]], fixed: set[int]) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for name, sizes in sorted(dims.items(), key=lambda item: max(item[1])):
        low, high = min(sizes), max(max(sizes), 2)
        # There is a prime between n and 2n, and no more of them are taken than there are names.
        upto = 2 ** (len(dims) + 1) * (high + max(fixed, default=0) + 8)
        free = [p for p in _primes_between(low, upto) if p not in chosen.values()]
        within = [p for p in free if low <= p <= high]
        new = [p for p in within if p not in fixed]
        larger = [p for p in free if p > high and p not in fixed]
        chosen[name] = (new or within or larger)[0]
    return {name: chosen[name] for name in dims}


def _primes_between(low: int, high: int) -> Iterator[int]:
    """Yield the first few primes of the interval, 2 last: a size of 2 is special more often."""
    found = 0
    for number in range(max(low, 3) | 1, high + 1, 2):
        if all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2)):
            yield number
            found += 1
            if found == _ENOUGH:
                break
    if low <= 2:
        yield 2


def sizes_label(sizes: Sizes) -> str:
    """Return ``batch=2,seq=16``."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
