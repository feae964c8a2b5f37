"""Makes cases of what a search has drawn, tried, sought or climbed to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.reach.kept_rows import KeptRows


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
