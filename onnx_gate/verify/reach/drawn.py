"""The inputs of cases that are made beyond the suites: which axes are a batch's, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.roles import roles
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import is_drawable
from onnx_gate.verify.inputs.sizes import Sizes, elements
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.purse import LARGEST
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
        return frozenset(d for d, role in roles(self.spec.inputs).items() if role == "batch")

    @property
    def batch_axes(self) -> Mapping[str, list[bool]]:
        """Of every axis of every input whether it is a batch's."""
        return {n: [d in self.batch for d in each.shape] for n, each in self.spec.inputs.items()}

    def by_rows(self, names: Iterable[str]) -> bool:
        """Return whether the first axis of all of the inputs is the batch, and no other one is."""
        axes = self.batch_axes
        return all(axes[name][:1] == [True] and not any(axes[name][1:]) for name in names)

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
            return draw_values(inputs, known, at.sizes, (REACHED, *key), way)
        return draw_values(self.spec.inputs, known, at, (REACHED, *key), way)

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

    def batches(self, base: Case, tried: Sequence[int] = BATCHES) -> Iterator[tuple[int, Sizes]]:
        """Yield batches of sizes that are tried where every input can be drawn at any size."""
        inputs = self.spec.inputs
        batch = [dim for dim in base.sizes if dim in self.batch]
        if not batch or self.spec.named_dims & {*batch}:
            return
        if not all(is_drawable(each) for each in inputs.values()):
            return
        for rows in tried:
            sizes = {**base.sizes, **dict.fromkeys(batch, rows)}
            if elements(inputs, sizes) <= LARGEST:
                yield rows, sizes

    def largest_batch(
        self, base: Case, affords: Callable[[Sizes], bool], rows: Sequence[int]
    ) -> Sizes | None:
        """Return the sizes with the first of these batches that there is enough for, or the case's own."""
        tried = (*(sizes for _, sizes in self.batches(base, rows)), base.sizes)
        return next((sizes for sizes in tried if affords(sizes)), None)
