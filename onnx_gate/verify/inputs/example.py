"""The inputs that a model is exported with: sizes of their own, values drawn or taken from a suite."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from onnx_gate.manifest import FilesSuite, GeneratorSuite, ModelSpec
from onnx_gate.manifest.roles import roles
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import cases
from onnx_gate.verify.inputs.draw import Stream, draw, is_drawable
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes, concrete, larger

# So many of a suite's own cases are tried where ``forward`` refuses every drawn one.
_STORED = 3
_ENOUGH = 64
# Behind a stride of 8, or in chunks of 32, there are two of these at least. Of what is a single one
# torch.export takes for granted that it always is.
_LENGTH = 61


def examples(
    spec: ModelSpec, workspace: Path, first: Sizes | None = None
) -> Iterator[tuple[Sizes, Mapping[str, Array]]]:
    """Yield the sizes and the arrays that may be the export's example, the best first.

    ``first`` is tried before all others. Drawn values come first; a model may refuse all of these
    (it wants probabilities, or sorted offsets), and then the suites that bring their own values
    have some that fit. Raises ``GateError`` where such a suite cannot be read.
    """
    if all(is_drawable(each) for each in spec.inputs.values()):
        if first is not None:
            yield first, example_at(spec, first)
        for sizes in example_sizes(spec):
            yield sizes, example_at(spec, sizes)
    every = {**spec.suites, **spec.given}
    own = {n: s for n, s in every.items() if isinstance(s, FilesSuite | GeneratorSuite)}
    stored = cases(replace(spec, suites=own), {}, workspace) if own else ()
    yield from ((case.sizes, case.arrays) for case in itertools.islice(stored, _STORED))


def example_at(spec: ModelSpec, sizes: Sizes) -> dict[str, Array]:
    """Return the values that are drawn for an example of these sizes."""
    return {
        name: draw(at_sizes(each, sizes), concrete(each, sizes), Stream(spec.seed, "example", name))
        for name, each in spec.inputs.items()
    }


def example_sizes(spec: ModelSpec) -> Iterator[Sizes]:
    """Yield sizes for the export's example, the best first; those of the manifest are kept.

    First a prime of its own for every dimension, different from every fixed size, so that two
    dimensions cannot be confused and neither 0 nor 1 is specialised. Models that take only certain
    sizes refuse that; then come the tested sizes themselves, distinct and above 1 where they can
    be, the larger ones, and primes that are not tested. Where nobody would notice that a size of
    its own decides the export, sizes of the manifest come before all others. A length of which the
    manifest says nothing is as long as those that are used, before it is as short as those that are tested.
    """
    named = spec.export.example
    fixed = {d for each in spec.inputs.values() for d in each.shape if isinstance(d, int)}
    fixed |= set(named.values())
    free = {name: sizes for name, sizes in spec.dims.items() if name not in named}
    batch = {name for name, role in roles(spec.inputs).items() if role == "batch"}
    candidates = [
        *_lengths(spec, free, fixed, batch),
        *_free_sizes(free, fixed, batch),
        *larger(spec),
    ]
    if spec.onnx is not None or spec.export.exporter != "dynamo":
        candidates.sort(key=lambda sizes: _strange(spec, sizes))
    for sizes in candidates:
        yield {name: named.get(name, sizes.get(name, 0)) for name in spec.dims}


def _lengths(
    spec: ModelSpec, free: Mapping[str, Sequence[int]], fixed: set[int], batch: set[str]
) -> Iterator[Sizes]:
    """Yield primes with lengths that strides, windows and chunks leave some of."""
    kinds = roles(spec.inputs)
    own = [d for d in free if kinds.get(d) == "positions" and d not in spec.named_dims]
    if own and spec.exported_here:
        yield _primes({**free, **dict.fromkeys(own, (_LENGTH,))}, fixed, batch)


def _strange(spec: ModelSpec, sizes: Sizes) -> bool:
    """Return whether a size is none of those that the manifest gives the dimension.

    A file that exists may be made for these alone; and what a trace of another exporter than
    torch.export took for granted at its example is written nowhere.
    """
    return any(size not in spec.dims[d] for d, size in sizes.items() if d in spec.named_dims)


def _free_sizes(
    dims: Mapping[str, Sequence[int]], fixed: set[int], batch: set[str]
) -> Iterator[Sizes]:
    if not dims:
        yield {}
        return
    yield _primes(dims, fixed, batch)
    usable = {
        name: sorted([s for s in sizes if s >= 2] or sizes, reverse=name not in batch)
        for name, sizes in dims.items()
    }
    mixed = list(itertools.islice(itertools.product(*usable.values()), 512))
    mixed.sort(key=lambda sizes: (-len(set(sizes)), len(fixed & set(sizes))))
    for sizes in mixed[:8]:
        yield dict(zip(usable, sizes, strict=True))
    for name in dims:
        primes = _primes({name: dims[name]}, fixed, batch)
        others = {n: max(s) for n, s in dims.items() if n != name}
        yield {n: primes.get(n, others.get(n, 2)) for n in dims}
    # A model that is made for none of the tested sizes can still say which ones it is made for.
    yield _primes(dims, fixed | {size for sizes in dims.values() for size in sizes}, batch)


def _primes(dims: Mapping[str, Sequence[int]], fixed: set[int], batch: set[str]) -> dict[str, int]:
    """Return a prime for each dimension: a tested size where one is, else one among them or above.

    The smallest, since the example is run more often than any other input; but 2 for nothing but a
    batch where there is another: what is computed along two elements is degenerate.
    """
    chosen: dict[str, int] = {}
    order = sorted(dims.items(), key=lambda item: (item[0] not in batch, max(item[1])))
    for name, sizes in order:
        low, high = min(sizes), max(max(sizes), 2)
        # There is a prime between n and 2n, and no more of them are taken than there are names.
        upto = 2 ** (len(dims) + 1) * (high + max(fixed, default=0) + 8)
        free = [p for p in _primes_between(low, upto) if p not in chosen.values()]
        if name in batch:
            free.sort()
        within = [p for p in free if p <= high]
        new = [p for p in within if p not in fixed]
        tested = [p for p in new if p in sizes and (p > 2 or name in batch)]
        beyond = [p for p in free if p > high and p not in fixed]
        chosen[name] = (tested or new or within or beyond)[0]
    return {name: chosen[name] for name in dims}


def _primes_between(low: int, high: int) -> Iterator[int]:
    """Yield the first few primes of the interval, 2 last: a size of 2 is special more often."""
    yielded = 0
    for number in range(max(low, 3) | 1, high + 1, 2):
        if all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2)):
            yield number
            yielded += 1
            if yielded == _ENOUGH:
                break
    if low <= 2:
        yield 2
