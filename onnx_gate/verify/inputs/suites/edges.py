"""``edges``: inputs at the ends of what a dtype or a range can hold, one kind a case."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from onnx_gate.manifest import EdgesSuite, InputSpec
from onnx_gate.manifest.dimensions import is_computed
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import Float64, Stream, numpy_dtype, to_dtype
from onnx_gate.verify.inputs.masks import draw_inputs
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes, concrete, sizes_label
from onnx_gate.verify.inputs.suites.base import Draft, SuiteContext, is_float

LARGE = 1e4
TINY = 1e-6
_SWEEP = 8.0
# Few significant bits, so that sums and products of them are exact in every dtype.
_TIES = (-1.0, -0.5, 0.0, 0.5, 1.0)

Maker = Callable[[InputSpec, tuple[int, ...], Stream], Array]


@dataclass(frozen=True)
class _Edge:
    """One case: ``makers`` fill some of the inputs, the others are drawn at random."""

    kind: str
    label: str
    makers: Mapping[str, Maker]
    empty: str | None = None


class EdgeCases:
    """``{edges: [zeros, large]}``: each kind where the dtype and the range allow it."""

    def cases(self, suite: EdgesSuite, context: SuiteContext) -> Iterator[Draft]:
        """Yield ``kind/sizes`` for every kind that fits some input."""
        edges = [edge for kind in suite.edges for edge in _edges(kind, context.inputs)]
        for number, (edge, sizes) in enumerate(_pairs(edges, context)):
            label = sizes_label(sizes)
            key = (suite.seed, context.name, edge.label, label)
            others = {n: s for n, s in context.inputs.items() if n not in edge.makers}
            drawn = draw_inputs(others, sizes, key, "normal", number)
            arrays = {
                name: drawn[name]
                if name in drawn
                else edge.makers[name](
                    at_sizes(spec, sizes), concrete(spec, sizes), Stream(*key, name)
                )
                for name, spec in context.inputs.items()
            }
            parts = (edge.label, *([label] if label else []))
            yield Draft(parts, arrays, sizes, edge=edge.kind)


def _pairs(edges: list[_Edge], context: SuiteContext) -> Iterator[tuple[_Edge, Sizes]]:
    combinations = context.combinations if context.focus is None else (context.focus,)
    yield from itertools.product((edge for edge in edges if edge.empty is None), combinations)
    for edge in edges:
        if edge.empty is not None:
            widest = max(combinations, key=lambda sizes: sum(sizes.values()))
            yield edge, {**widest, edge.empty: 0}


def _edges(kind: str, inputs: Mapping[str, InputSpec]) -> Iterator[_Edge]:
    if kind == "empty":
        names = dict.fromkeys(
            d
            for spec in inputs.values()
            for d in spec.shape
            if isinstance(d, str) and not is_computed(d)
        )
        for name in names:
            yield _Edge(kind, f"empty.{name}" if len(names) > 1 else kind, {}, empty=name)
    elif kind == "masks":
        for name, spec in inputs.items():
            if spec.dtype == "bool":
                for label, mask in (("false", False), ("true", True)):
                    yield _Edge(kind, f"masks.all_{label}.{name}", {name: _constant(mask)})
    elif kind == "int_extremes":
        for name, spec in inputs.items():
            if spec.has_range and not is_float(spec):
                for index, end in enumerate(("low", "high")):
                    yield _Edge(kind, f"int_extremes.{end}.{name}", {name: _end(index)})
    elif kind == "bounds":
        ranged = {n: s for n, s in inputs.items() if s.range is not None and is_float(s)}
        for index, end in enumerate(("low", "high")):
            if ranged:
                yield _Edge(kind, f"bounds.{end}", dict.fromkeys(ranged, _end(index)))
    else:
        make, applies = _KINDS[kind]
        makers = {n: make for n, s in inputs.items() if is_float(s) and applies(s)}
        if makers:
            yield _Edge(kind, kind, makers)


def _constant(value: float | int | bool) -> Maker:
    def make(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
        return np.full(shape, value, dtype=numpy_dtype(spec.dtype))

    return make


def _end(index: int) -> Maker:
    """Return one end of the range everywhere."""

    def make(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
        assert spec.range is not None
        return np.full(shape, spec.range[index], dtype=numpy_dtype(spec.dtype))

    return make


def _scaled(factor: float) -> Maker:
    def make(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
        values = _within_range(source.normal(_count(shape)) * factor, spec)
        return to_dtype(values, spec, shape)

    return make


def _negative(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
    values = -np.abs(source.normal(_count(shape)))
    if spec.range is not None:
        values = values * (-spec.range[0] / 4)
        values = np.clip(values, spec.range[0], min(spec.range[1], 0.0))
    return to_dtype(values, spec, shape)


def _subnormal(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
    smallest = float(ml_dtypes.finfo(numpy_dtype(spec.dtype)).smallest_normal)
    values = (2 * source.uniform(_count(shape)) - 1) * smallest
    return to_dtype(_within_range(values, spec), spec, shape)


def _ties(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
    choices = [v for v in _TIES if spec.range is None or spec.range[0] <= v <= spec.range[1]]
    if len(choices) < 2 and spec.range is not None:
        low, high = spec.range
        choices = [low, (low + high) / 2, high]
    picks = (source.words(_count(shape)) % np.uint64(len(choices))).astype(np.int64)
    return to_dtype(np.asarray(choices, dtype=np.float64)[picks], spec, shape)


def _sweep(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
    low, high = spec.range or (-_SWEEP, _SWEEP)
    count = _count(shape)
    steps = np.arange(count, dtype=np.float64) / max(count - 1, 1)
    return to_dtype(low + (high - low) * steps, spec, shape)


def _sprinkled(values: tuple[float, ...]) -> Maker:
    """Return normal numbers in which one element of eight, and at least one, is special."""

    def make(spec: InputSpec, shape: tuple[int, ...], source: Stream) -> Array:
        count = _count(shape)
        array = source.normal(count)
        if count:
            chosen = source.words(count) % np.uint64(8) == 0
            chosen[int(source.words(1)[0] % np.uint64(count))] = True
            special = np.flatnonzero(chosen)
            array[special] = np.resize(np.asarray(values), special.size)
        return to_dtype(array, spec, shape)

    return make


def _within_range(values: Float64, spec: InputSpec) -> Float64:
    if spec.range is None:
        return values
    if spec.range[0] >= 0:
        values = np.abs(values)
    elif spec.range[1] <= 0:
        values = -np.abs(values)
    return np.clip(values, *spec.range)


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _holds(*values: float) -> Callable[[InputSpec], bool]:
    def applies(spec: InputSpec) -> bool:
        return spec.range is None or all(spec.range[0] <= v <= spec.range[1] for v in values)

    return applies


def _unbounded(spec: InputSpec) -> bool:
    return spec.range is None


_KINDS: Mapping[str, tuple[Maker, Callable[[InputSpec], bool]]] = {
    "zeros": (_constant(0.0), _holds(0.0)),
    "ones": (_constant(1.0), _holds(1.0)),
    "negative": (_negative, lambda spec: spec.range is None or spec.range[0] < 0),
    "large": (_scaled(LARGE), lambda s: s.range is None or max(map(abs, s.range)) >= 5 * LARGE),
    "tiny": (_scaled(TINY), _holds(0.0)),
    "subnormal": (_subnormal, _holds(0.0)),
    "ties": (_ties, lambda spec: True),
    "sweep": (_sweep, lambda spec: True),
    "nan": (_sprinkled((float("nan"),)), _unbounded),
    "inf": (_sprinkled((float("inf"), float("-inf"))), _unbounded),
}
