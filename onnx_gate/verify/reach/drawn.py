"""The inputs of cases that are made beyond the suites: which axes are a batch's, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.roles import batch_axes, batches
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import FLOATS, is_drawable
from onnx_gate.verify.inputs.sizes import Sizes, elements
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.purse import LARGEST
from onnx_gate.verify.reach.stack import Stack, moved
from onnx_gate.verify.reach.values import draw_values

# So many rows hold every way of drawing some hundred times, and pairs of small codes all of them.
BATCHES = (4000, 1000, 250, 60, 20, 10)
# And so many some rows of a table, one or two in each.
FEW = (32, 16, 8)


@dataclass(frozen=True)
class DrawnInputs:
    """What is drawn for the inputs of a model, at the sizes that are asked for."""

    spec: ModelSpec

    @cached_property
    def batch(self) -> frozenset[str]:
        """The dimensions that are a batch's."""
        return batches(self.spec.inputs)

    @cached_property
    def axes(self) -> Mapping[str, int]:
        """The axis of each input that is the batch's."""
        return batch_axes(self.spec.inputs)

    @property
    def row_axes(self) -> Mapping[str, int]:
        """The axis along which rows lie that can be given among others, none where they cannot."""
        return self.axes if self.grows else {}

    @cached_property
    def grows(self) -> bool:
        """Whether there is a batch, and every input can be drawn at any size of it."""
        drawable = all(map(is_drawable, self.spec.inputs.values()))
        return drawable and bool(self.batch) and not self.spec.named_dims & self.batch

    def stack(self, known: Iterable[str]) -> Stack | None:
        """Return how rows are given, of the inputs that are ``known`` where each is a pass.

        ``None`` where an input has several axes of the batch.
        """
        if not self.grows:
            return Stack(dict.fromkeys(known, 0), passes=True)
        square = any(
            {*each.shape} & self.batch for n, each in self.spec.inputs.items() if n not in self.axes
        )
        return None if square else Stack(self.axes)

    def draw(
        self,
        known: Mapping[str, Domain],
        at: Case | Sizes,
        key: tuple[object, ...],
        way: int | None,
    ) -> dict[str, Array]:
        """Draw for every input at some sizes, or at those of a case for those that may change."""
        if isinstance(at, Case):
            inputs = {n: replace(d.spec, shape=at.arrays[n].shape) for n, d in known.items()}
            sizes = at.sizes
        else:
            inputs, sizes = dict(self.spec.inputs), at
        # Rows are drawn first axis first, wherever they lie.
        later = {n: axis for n, axis in self.axes.items() if axis and n in known and n in inputs}
        for name, axis in later.items():
            inputs[name] = _first(inputs[name], axis)
        drawn = draw_values(inputs, known, sizes, (REACHED, *key), way)
        for name, axis in later.items():
            drawn[name] = moved(drawn[name], 0, axis)
        return drawn

    def ending(self, arrays: Mapping[str, Array], dims: Collection[str]) -> dict[str, Array]:
        """Return inputs of floats, each row turned round so that its largest is just before the end.

        Along some dimensions, where an input has one; one place further from the end in each next row.
        """
        turned: dict[str, Array] = {}
        for name, spec in self.spec.inputs.items():
            axes = [axis for axis, dim in enumerate(spec.shape) if axis and dim in dims]
            if spec.dtype not in FLOATS or not axes or not arrays[name].size:
                continue
            rows = []
            for number, row in enumerate(arrays[name], 2):
                at = np.unravel_index(int(np.argmax(row)), row.shape)
                ends = {axis - 1: row.shape[axis - 1] - number for axis in axes}
                by = [end - int(at[axis]) for axis, end in ends.items()]
                rows.append(np.roll(row, by, tuple(ends)))
            turned[name] = np.stack(rows)
        return turned

    def rows(
        self, base: Case, known: Mapping[str, Domain], rows: int, key: tuple[object, ...]
    ) -> dict[str, Array]:
        """Draw so many whole inputs of a case's sizes, first axis first, beside what may not change."""
        shapes = {name: (rows, *base.arrays[name].shape) for name in known}
        inputs = {name: replace(d.spec, shape=shapes[name]) for name, d in known.items()}
        return {**base.arrays, **draw_values(inputs, known, base.sizes, (REACHED, *key), None)}

    def beside(
        self,
        base: Case,
        known: Mapping[str, Domain],
        sizes: Sizes,
        key: tuple[object, ...],
        way: int | None,
    ) -> dict[str, Array]:
        """Draw for the inputs of a case at some sizes; at its own those that may not change stay."""
        at = base if sizes == base.sizes else sizes
        return {**base.arrays, **self.draw(known, at, key, way)}

    def sized(self, sizes: Sizes, rows: int) -> Sizes:
        """Return sizes with a batch of so many rows."""
        return {**sizes, **dict.fromkeys(self.batch & sizes.keys(), rows)}

    def batches(self, base: Case, tried: Sequence[int] = BATCHES) -> Iterator[tuple[int, Sizes]]:
        """Yield batches of sizes that are tried where every input can be drawn at any size."""
        if not self.batch & base.sizes.keys() or not self.grows:
            return
        for rows in tried:
            sizes = self.sized(base.sizes, rows)
            if elements(self.spec.inputs, sizes) <= LARGEST:
                yield rows, sizes

    def largest_batch(
        self, base: Case, affords: Callable[[Sizes], bool], rows: Sequence[int]
    ) -> Sizes | None:
        """Return the sizes with the first of these batches that there is enough for, or the case's own."""
        tried = (*(sizes for _, sizes in self.batches(base, rows)), base.sizes)
        return next((sizes for sizes in tried if affords(sizes)), None)


def _first(spec: InputSpec, axis: int) -> InputSpec:
    shape = [*spec.shape]
    return replace(spec, shape=(shape.pop(axis), *shape))
