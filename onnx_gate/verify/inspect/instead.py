"""Whether a weight that is not the module's is so together with others, which make up for it.

Scales move from one layer to the next, hidden units change places, the affine part of a norm goes into
the layer behind it: such a file has other weights and computes the same. What tells it from a stale row
that no input reaches, or from what is off by less than is seen, is an experiment: with the module's own
weight in its place the file is wrong. In the place of a stale one it is as right as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from onnx_gate.graph.session import PlainSession
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array, Refusal

# What is further off than so many times what the file is, and than rounding of an output's scale, is wrong.
_WORSE, _ROUNDING = 10.0, 1e-5


@dataclass(frozen=True)
class Instead:
    """A file, inputs by the graph's names and PyTorch's outputs for them."""

    path: Path
    feeds: Mapping[str, Array]
    expected: Sequence[Array]

    def parts(self, name: str, array: Array) -> bool:
        """Return whether the file parts from PyTorch with ``array`` as its weight ``name``.

        It does not where the file cannot be run so.
        """
        apart = self._apart({name: array})
        return apart is not None and self._own is not None and apart > self._own

    @cached_property
    def _own(self) -> float | None:
        apart = self._apart({})
        return None if apart is None else _WORSE * max(apart, _ROUNDING)

    def _apart(self, weights: Mapping[str, Array]) -> float | None:
        try:
            outputs = PlainSession(self.path, weights=weights).run(self.feeds)
        except Refusal:
            return None
        pairs = list(zip(outputs, self.expected, strict=False))
        if any(a.shape != b.shape for a, b in pairs):
            return None
        with np.errstate(all="ignore"):
            each = [scale_error(a, b) for a, b in pairs if b.dtype.kind == "f"]
        return max(each, default=None)
