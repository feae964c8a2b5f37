"""Every small size, where sizes are divided, or computed in floats and rounded: what both sides say there.

Such a size may be a wrong one at multiples of 7 beyond 49 alone. A case of each would be more than a report
can list, and costs more than both answers do: so these are asked for, of one row, and where they are
clearly not the same that is a case, which is judged as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label, tried_sizes
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.purse import Purse
from onnx_gate.verify.reach.sizes import free_dimensions, long_dimensions, sizes_along

# What a file says of inputs, its outputs in the order of their names; nothing where it refuses.
Answers = Callable[[Mapping[str, Array], Sequence[str]], Sequence[Array] | None]

# Up to twice the largest size that most dimensions are tested at: multiples of small numbers come up again.
MOST = 128
# So many sizes of a dimension at which a file is wrong say that it is.
_SHOWN = 2
# A call of each side, and what is drawn for them.
_PASSES = 3.0
# A wrong size changes elements by more than this share of what they are, and rounding hardly any.
_CLEARLY = 1e-3


@dataclass(frozen=True)
class EverySize:
    """Asks both sides at each size of one dimension after the other, for what a purse has."""

    spec: ModelSpec
    eager: Eager
    answers: Answers
    inputs: DrawnInputs
    purse: Purse

    def differing(self) -> Iterator[tuple[str, Sizes, Mapping[str, Array]]]:
        """Yield the first sizes at which a file says something else, each with a name and inputs."""
        base = self.purse.base.sizes
        free = free_dimensions(self.spec, base)
        rows = [
            (dim, sizes_along(self.spec, free, dim, size))
            for size in range(1, MOST + 1)
            for dim in long_dimensions(self.spec, free)
        ]
        known, shown = tried_sizes(self.spec), dict.fromkeys(free, 0)
        for dim, row in rows:
            sizes = {**base, **row}
            if row in known or shown[dim] == _SHOWN:
                continue
            if not self.purse.takes(_PASSES, self.purse.ratio(sizes, longer=True)):
                return
            arrays = self.inputs.draw({}, sizes, ("sizes", sizes_label(row)), None)
            if self._differs(arrays):
                shown[dim] += 1
                yield sizes_label(row), sizes, arrays

    def _differs(self, arrays: Mapping[str, Array]) -> bool:
        try:
            outputs = self.eager.run(arrays)
        except Refusal:
            return False
        answers = self.answers(arrays, outputs.names)
        if answers is None or len(outputs.arrays) != len(answers):
            return True
        return any(map(_is_other, outputs.arrays, answers))


def _is_other(expected: Array, actual: Array) -> bool:
    """Return whether an answer is clearly none that rounding could have made."""
    if expected.shape != actual.shape:
        return True
    if expected.dtype.kind not in "fV" or not expected.size:
        return not np.array_equal(expected, actual)
    one, other = (each.astype(np.float64) for each in (expected, actual))
    with np.errstate(all="ignore"):
        near = _CLEARLY * (np.abs(one) + np.sqrt(np.mean(one * one)))
        same = (one == other) | (np.isnan(one) & np.isnan(other)) | (np.abs(one - other) <= near)
    return not bool(same.all())
