"""What PyTorch says about one case: its outputs, and more where a verdict needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager, Outputs
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.index_source import Origin, Tracker
from onnx_gate.verify.reference.perturb import jittered
from onnx_gate.verify.stopwatch import Clock

# Runs under jitter: few, because each is a forward pass, and only made before a check diverges.
SAMPLES = 4
# The name under which all of these are timed.
FLOAT64 = "float64"


class CaseOracle:
    """The outputs of one case; the float64 run and the jittered ones are made once, if at all."""

    def __init__(
        self,
        eager: Eager,
        wide: Float64Reference,
        inputs: Mapping[str, Array],
        outputs: Outputs,
        repetitive: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.outputs = outputs
        self._clock = clock or Clock()
        self._repetitive = repetitive
        self._eager, self._wide, self._inputs = eager, wide, inputs
        self._reference: tuple[Array, ...] | None = None
        self._reference_tried = False
        self._samples: list[tuple[Array, ...]] | None = None
        self._origins: list[tuple[Origin, Origin | None] | None] | None = None

    def output(self, index: int) -> OutputOracle:
        """Return what can be asked about one output."""
        return OutputOracle(self, index)

    def references(self) -> tuple[Array, ...] | None:
        """Return all outputs in float64, or ``None``."""
        if not self._reference_tried:
            self._reference_tried = True
            with self._clock.of(FLOAT64):
                found = self._wide.run(self._inputs)
            shapes = [array.shape for array in self.outputs.arrays]
            if found is not None and [array.shape for array in found] == shapes:
                self._reference = found
        return self._reference

    def samples(self) -> list[tuple[Array, ...]]:
        """Return the outputs of every jittered run that worked."""
        if self._samples is None:
            runs = (
                jittered(self._eager, self._inputs, seed, self._repetitive)
                for seed in range(SAMPLES)
            )
            count = len(self.outputs.arrays)
            with self._clock.of(FLOAT64):
                self._samples = [run for run in runs if run is not None and len(run) == count]
        return self._samples

    def origins(self) -> list[tuple[Origin, Origin | None] | None]:
        """Return, for each output, what it points into."""
        if self._origins is None:
            with self._clock.of(FLOAT64):
                self._origins = self._trace()
        return self._origins

    def _trace(self) -> list[tuple[Origin, Origin | None] | None]:
        nothing: list[tuple[Origin, Origin | None] | None] = [None] * len(self.outputs.arrays)
        tracker = Tracker()
        try:
            _, tensors = self._eager.run_tensors(self._inputs, mode=tracker)
        except Refusal:
            return nothing
        own = tracker.origins(tensors)
        if not any(own):
            return nothing
        wide_tracker = Tracker()
        wide_outputs = self._wide.run_tensors(self._inputs, inner=wide_tracker)
        wide: Sequence[Origin | None] = [None] * len(own)
        if wide_outputs is not None:
            wide = wide_tracker.origins(wide_outputs[1])
        return [None if o is None else (o, w) for o, w in zip(own, wide, strict=False)]


class OutputOracle:
    """One output of a ``CaseOracle``, as ``judge`` asks about it."""

    def __init__(self, case: CaseOracle, index: int) -> None:
        self._case, self._index = case, index

    def reference(self) -> Array | None:
        """Return the output in float64, or ``None``."""
        references = self._case.references()
        return None if references is None else references[self._index]

    def samples(self) -> Sequence[Array]:
        """Return the output of every jittered run."""
        return [run[self._index] for run in self._case.samples()]

    def origin(self) -> tuple[Origin, Origin | None] | None:
        """Return what the output points into, as PyTorch and as float64 compute it."""
        return self._case.origins()[self._index]
