"""What PyTorch says about one case: its outputs, and more where a verdict needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.answers import FEW, IndexSource, OtherAnswer, Reference, Searched
from onnx_gate.verify.reference.decided import Decided
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.index_source import Tracker
from onnx_gate.verify.reference.moved import decided_by, moved, moved_at_end, recorded, run_moved
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.reference.tape import Tape
from onnx_gate.verify.reference.variants import Variant, variants
from onnx_gate.verify.stopwatch import Clock

# Runs with moved rounding, at most: as many as show what rounding does to one element.
RUNS = 16
# The name under which all of these are timed.
FLOAT64 = "float64"


@dataclass
class SaidOfCase:
    """What PyTorch has said of a case beside its outputs: data alone, which may come from another process.

    Of ``seeds`` runs with moved rounding ``samples`` are those that worked; ``all_replayed``: there are no
    more runs of the last operators alone. ``rewritten`` are operators that these moved by what their form
    in a file loses.
    """

    float64: tuple[tuple[Array, ...] | None] | None = None
    samples: list[tuple[Array, ...]] = field(default_factory=list)
    seeds: int = 0
    replayed: list[tuple[Array, ...]] = field(default_factory=list)
    all_replayed: bool = False
    decided: dict[int, tuple[Array, ...] | None] = field(default_factory=dict)
    variants: tuple[Variant, ...] | None = None
    searched: list[Searched | None] | None = None
    rewritten: Mapping[str, str] = field(default_factory=dict)

    def copy(self) -> SaidOfCase:
        """Return one to which as much more can be added."""
        return replace(
            self,
            samples=list(self.samples),
            replayed=list(self.replayed),
            decided=dict(self.decided),
        )


class CaseReference:
    """The outputs of one case; every other run is made once, if at all, and ``said`` what it came to.

    ``tape`` has the last operators of the run that has answered, where they were kept.
    """

    stepped: ClassVar[bool] = False

    def __init__(
        self,
        eager: Eager,
        float64: Float64Reference,
        inputs: Mapping[str, Array],
        outputs: Outputs,
        clock: Clock | None = None,
        tape: Tape | None = None,
    ) -> None:
        self.outputs = outputs
        self._clock = clock or Clock()
        self._eager, self._float64, self._inputs = eager, float64, inputs
        self.said = SaidOfCase()
        self._tape = tape
        self._kept: tuple[Decided | None] | None = None

    @property
    def rewritten(self) -> Mapping[str, str]:
        """The operators that were moved by what their form in a file loses, with that form."""
        return self.said.rewritten

    def recall(self, other: CaseReference) -> None:
        """Take over what another one has asked about the same inputs."""
        self.said, self._tape, self._kept = other.said.copy(), other._tape, other._kept

    def output(self, index: int) -> OutputReference:
        """Return what can be asked about one output."""
        return OutputReference(self, index)

    def float64(self) -> tuple[Array, ...] | None:
        """Return all outputs in float64, or ``None``."""
        if self.said.float64 is None:
            with self._clock.of(FLOAT64):
                arrays = self._run_in_float64()
            if arrays is not None and len(arrays) != len(self.outputs.arrays):
                arrays = None
            self.said.float64 = (arrays,)
        return self.said.float64[0]

    def rounding(self, count: int) -> list[tuple[Array, ...]]:
        """Return the outputs of every one of ``count`` runs with moved rounding that worked."""
        with self._clock.of(FLOAT64):
            while self.said.seeds < count:
                arrays = self._run_moved(self.said.seeds)
                self.said.seeds += 1
                if arrays is not None and len(arrays) == len(self.outputs.arrays):
                    self.said.samples.append(arrays)
        return self.said.samples

    def replayed(self, count: int) -> list[tuple[Array, ...]]:
        """Return the outputs of up to ``count`` runs in which the last operators alone are moved."""
        with self._clock.of(FLOAT64):
            while len(self.said.replayed) < count and not self.said.all_replayed:
                self._tape = self._tape or self._record()
                run = (
                    None
                    if self._tape is None
                    else moved_at_end(self._tape, len(self.said.replayed))
                )
                if run is None or len(run.arrays) != len(self.outputs.arrays):
                    self.said.all_replayed = True
                    break
                self.said.rewritten = {**self.rewritten, **run.rewritten}
                self.said.replayed.append(run.arrays)
        return self.said.replayed[:count]

    def decided(self, run: int) -> tuple[Array, ...] | None:
        """Return a run with moved rounding in which all is decided as PyTorch does, or ``None``."""
        if run not in self.said.decided:
            with self._clock.of(FLOAT64):
                self.said.decided[run] = self._run_decided(run)
        return self.said.decided[run]

    def variants(self) -> tuple[Variant, ...]:
        """Return PyTorch's other answers on these inputs."""
        if self.said.variants is None:
            with self._clock.of(FLOAT64):
                self.said.variants = self._run_variants()
        return self.said.variants

    def searched(self) -> list[Searched | None]:
        """Return, for each output, what it points into."""
        if self.said.searched is None:
            with self._clock.of(FLOAT64):
                self.said.searched = self._trace()
        return self.said.searched

    def _run_in_float64(self) -> tuple[Array, ...] | None:
        return self._float64.run(self._inputs)

    def _run_moved(self, seed: int) -> tuple[Array, ...] | None:
        return self._moved(self._inputs, seed)

    def _record(self) -> Tape | None:
        return recorded(self._eager, self._inputs)

    def _moved(self, inputs: Mapping[str, Array], seed: int) -> tuple[Array, ...] | None:
        run = moved(self._eager, inputs, seed)
        if run is None:
            return None
        self.said.rewritten = {**self.rewritten, **run.rewritten}
        return run.arrays

    def _run_decided(self, seed: int) -> tuple[Array, ...] | None:
        if self._kept is None:
            self._kept = (self._keep(),)
        kept = self._kept[0]
        return None if kept is None else self._follow(kept, seed)

    def _keep(self) -> Decided | None:
        return decided_by(self._eager, self._inputs)

    def _follow(self, kept: Decided, seed: int) -> tuple[Array, ...] | None:
        mode = MovedRounding(seed, decided=kept.followed())
        arrays = run_moved(self._eager, self._inputs, mode)
        return arrays if arrays is not None and len(arrays) == len(self.outputs.arrays) else None

    def _run_variants(self) -> tuple[Variant, ...]:
        made = variants(self._eager, self._inputs)
        return tuple(v for v in made if len(v.arrays) == len(self.outputs.arrays))

    def _trace(self) -> list[Searched | None]:
        nothing: list[Searched | None] = [None] * len(self.outputs.arrays)
        tracker = Tracker()
        try:
            _, tensors = self._eager.run_tensors(self._inputs, mode=tracker)
        except Refusal:
            return nothing
        own = tracker.origins(tensors)
        if not any(own):
            return nothing
        runs = [run for seed in range(RUNS) if len(run := self._search_moved(seed)) == len(own)]
        return [
            None if o is None else Searched(o, tuple(s for run in runs if (s := run[index])))
            for index, o in enumerate(own)
        ]

    def _search_moved(self, seed: int) -> list[IndexSource | None]:
        tracker = Tracker()
        try:
            with MovedRounding(seed):
                _, tensors = self._eager.run_tensors(self._inputs, mode=tracker)
        except Refusal:
            return []
        return tracker.origins(tensors)


class OutputReference(Reference):
    """One output of a ``CaseReference``, as ``judge`` asks about it."""

    def __init__(self, case: CaseReference, index: int) -> None:
        self._case, self._index = case, index

    def float64(self) -> Array | None:
        """Return the output in float64, or ``None``; also where it has another shape there."""
        arrays = self._case.float64()
        if arrays is None or arrays[self._index].shape != self._own.shape:
            return None
        return arrays[self._index]

    def rounding(self, count: int) -> Sequence[Array]:
        """Return the output of the first ``count`` runs, whatever other outputs have asked for.

        Where rounding decides its shape, a run in which it does not stands for the one in which it does.
        """
        alike = []
        for run, array in enumerate(self._runs(count)):
            if array.shape == self._own.shape:
                alike.append(array)
                continue
            decided = self._case.decided(run)
            if decided is not None and decided[self._index].shape == self._own.shape:
                alike.append(decided[self._index])
        return alike

    def replayed(self, count: int) -> Sequence[Array]:
        """Return the output of up to ``count`` runs in which the last operators alone are moved."""
        runs = (arrays[self._index] for arrays in self._case.replayed(count))
        return [array for array in runs if array.shape == self._own.shape]

    def reshaped(self) -> Sequence[Array]:
        """Return the runs in which the output has another shape; none where none of the first few has."""
        found: list[Array] = []
        for count in (FEW, RUNS):
            found = [run for run in self._runs(count) if run.shape != self._own.shape]
            if not found:
                break
        return found

    def _runs(self, count: int) -> list[Array]:
        return [arrays[self._index] for arrays in self._case.rounding(count)[:count]]

    @property
    def _own(self) -> Array:
        return self._case.outputs.arrays[self._index]

    def variants(self) -> Sequence[OtherAnswer]:
        """Return the output in every variant."""
        return [
            OtherAnswer(
                v.cause, v.arrays[self._index], tuple(run[self._index] for run in v.moved), v.held
            )
            for v in self._case.variants()
        ]

    def searched(self) -> Searched | None:
        """Return what the output points into."""
        return self._case.searched()[self._index]
