"""Runs of a module with moved rounding side by side: each block is loaded once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx_gate.runtimes.base import Array, Outputs
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.judge.noise import GROUPS
from onnx_gate.verify.reference.answers import FEW
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import FLOAT64, CaseReference
from onnx_gate.verify.stopwatch import Clock

# Makes a run for each of some seeds; ``None`` for one that fails, or of which no rounding was seen.
Together = Callable[[Sequence[int]], list[tuple[Array, ...] | None]]
# The judge asks for a few, and for more of them. Here loading takes longer than computing, and what is
# computed beside is for nothing at most three times.
_AT_ONCE = (FEW, 2 * FEW, GROUPS[-1])


class TogetherReference(CaseReference):
    """What PyTorch says of a case of a model whose blocks are loaded one at a time.

    At most ``at_once`` runs go together: each holds what its blocks have returned.
    """

    def __init__(
        self,
        eager: Eager,
        inputs: Mapping[str, Array],
        outputs: Outputs,
        clock: Clock,
        together: Together,
        at_once: int,
    ) -> None:
        super().__init__(eager, Float64Reference(eager), inputs, outputs, clock)
        self._together, self._most = together, at_once
        self._made: dict[int, tuple[Array, ...] | None] = {}

    def rounding(self, count: int) -> list[tuple[Array, ...]]:
        """Return the outputs of at least ``count`` runs with moved rounding, of those that worked."""
        if count > self.said.seeds:
            count = next((each for each in _AT_ONCE if each >= count), count)
            with self._clock.of(FLOAT64):
                for first in range(self.said.seeds, count, self._most):
                    seeds = range(first, min(first + self._most, count))
                    self._made |= zip(seeds, self._together(seeds), strict=True)
        return super().rounding(count)

    def _run_moved(self, seed: int) -> tuple[Array, ...] | None:
        made = self._made.pop(seed, None)
        return super()._run_moved(seed) if made is None else made

    def _record(self) -> None:
        """Keep nothing: only one block is there at a time."""
