"""Cases of what a search has drawn, tried, sought or climbed to: rows that are answered with numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.purse import Purse
from onnx_gate.verify.reach.watcher import Watcher


@dataclass(frozen=True)
class KeptRows:
    """Runs a module on inputs, and keeps the rows of which it makes finite numbers.

    Of an output that is not finite in ordinary cases any row will do: the runtime is to answer the same.
    """

    watcher: Watcher
    inputs: DrawnInputs
    purse: Purse
    known: Mapping[str, Domain]

    def of(
        self, arrays: Mapping[str, Array], sizes: Sizes, longer: bool = False, pays: bool = True
    ) -> tuple[Mapping[str, Array], Sizes] | None:
        """Return what is kept, and remember what is decided there; ``None`` where nothing is."""
        ratio = self.purse.ratio(sizes, longer)
        try:
            outputs = self.watcher.run(arrays, keeps=self._is_finite)
        except Refusal:
            self.purse.pay(self.purse.cost.forward() if pays else 0.0)  # it says so early
            return None
        finite, cost = self._is_finite(outputs), self.purse.cost
        price = cost.case(ratio) if finite else cost.forward(ratio)  # no case is made of the others
        self.purse.pay(price if pays else 0.0)
        if finite:
            return arrays, sizes
        stack = self.inputs.stack(self.known)
        if stack is None or stack.passes:
            return None
        axes = stack.axes
        count = max((arrays[name].shape[axis] for name, axis in axes.items()), default=0)
        rows = finite_rows(outputs.without(self.watcher.endless), count)
        if not 0 < len(rows) < count:
            return None
        fewer = {n: a.take(rows, axes[n]) if n in axes else a for n, a in arrays.items()}
        return self.of(fewer, self.inputs.sized(sizes, len(rows)), longer, pays)

    def _is_finite(self, outputs: Outputs) -> bool:
        return outputs.endless <= self.watcher.endless


def finite_rows(outputs: Outputs, rows: int) -> Array:
    """Return those of so many rows of which a module has made finite numbers.

    Of outputs without rows of their own nothing can be told: all rows, or none.
    """
    good = np.ones(rows, np.bool_)
    for array in outputs.arrays:
        if array.dtype.kind in "fV" and rows:
            finite = np.isfinite(array.astype(np.float64))
            own = array.ndim and len(array) == rows
            good &= finite.reshape(rows, -1).all(axis=1) if own else finite.all()
    return np.flatnonzero(good)


@dataclass(frozen=True)
class Drafts:
    """Names cases by their parts, and keeps of them what the module answers.

    What is in ``made`` has its name already.
    """

    kept: KeptRows
    made: Collection[str]

    def told(
        self,
        parts: Sequence[str],
        arrays: Mapping[str, Array],
        sizes: Sizes,
        longer: bool = False,
    ) -> Iterator[Case]:
        """Yield what is drawn, tried or sought as a case, as far as the module answers it."""
        kept = self.kept.of(arrays, sizes, longer)
        if kept is not None:
            yield self.case(parts, *kept)

    def new(self, parts: Sequence[str], arrays: Mapping[str, Array], sizes: Sizes) -> Case:
        """Return a case of a decision: of two on one line each has cases of its own."""
        tried = (self.case([*parts, *[str(n)] * (n > 0)], arrays, sizes) for n in count())
        return next(case for case in tried if case.id not in self.made)

    def case(self, parts: Sequence[str], arrays: Mapping[str, Array], sizes: Sizes) -> Case:
        """Return a case whose name has these parts."""
        name = "/".join((REACHED, *(part for part in parts if part)))
        # What is computed of an array without axes is none, and no engine takes it.
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        return Case(REACHED, name, REACHED, arrays, sizes, named=False, sized=False)
