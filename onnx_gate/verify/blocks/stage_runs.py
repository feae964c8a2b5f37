"""What each stage of a model is run and judged with, and what its runtimes have taken so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from onnx_gate.errors import GateError
from onnx_gate.findings.codes import code_of
from onnx_gate.manifest import ModelSpec, RuntimeSpec, Tolerance
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.model import RuntimeResult
from onnx_gate.runtimes.half import HALF, Range
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.torch_side import BlockLine, TorchSide
from onnx_gate.verify.compared import Comparer, Setting, Tally
from onnx_gate.verify.context import Context
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.half import ranges_of
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.stopwatch import Clock


class StageRuns:
    """Opens the runtimes of a stage, whose piece lies in ``file``, and makes what judges them."""

    def __init__(self, spec: ModelSpec, context: Context, torch: TorchSide, clock: Clock) -> None:
        self.spec, self._context, self._torch, self._clock = spec, context, torch, clock
        self.file = context.folder / "blocks" / "piece.onnx"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.results = {r.label: RuntimeResult(runtime=r.label, seconds=0.0) for r in spec.runtimes}
        self.ranges: dict[str, Range] = {}

    @property
    def optimising(self) -> tuple[RuntimeSpec, ...]:
        """The runtimes that change a graph to be faster: ``half`` computes each node by itself."""
        return tuple(each for each in self.spec.runtimes if each.name != HALF)

    def judging(self, stage: BlockStage) -> ModelSpec:
        """Return the model's entry as it is for a stage: its own limits say nothing of values inside.

        What fewer bits may cost is said of a whole output and no unit of its own, and of values inside
        as well, each of which has less of it behind.
        """
        if not stage.name:
            return self.spec
        auto, whole = self.spec.tolerance.auto, self.spec.tolerance
        tolerance = Tolerance(auto=DEFAULT_AUTO if auto is None else auto)
        if self._torch.divided.reduced is not None and (whole.cosine or whole.snr_db):
            tolerance = Tolerance(cosine=whole.cosine, snr_db=whole.snr_db)
        runtimes = tuple(replace(each, tolerance=None) for each in self.spec.runtimes)
        return replace(self.spec, outputs=None, where={}, tolerance=tolerance, runtimes=runtimes)

    def comparer(
        self, spec: ModelSpec, experience: dict[str, Experience]
    ) -> Comparer[CaseReference]:
        """Return what judges by an entry; what outputs have come to is added to ``experience``."""
        tally: Tally[CaseReference] = Tally(clock=self._clock, experience=experience)
        return Comparer(self.setting(spec), tally)

    def setting(self, spec: ModelSpec) -> Setting:
        """Return what is judged by, for an entry."""
        return Setting(
            spec=spec,
            graph_outputs=self._torch.pieces.outputs,
            workspace=self._context.workspace,
            threads=self._context.threads,
            reduced=self._torch.divided.reduced,
        )

    @contextmanager
    def sessions(self, stage: BlockStage, runtimes: Sequence[RuntimeSpec]) -> Iterator[Sessions]:
        """Open the stage's file, whose weights stay where they are."""
        threads, weights = self._context.threads, self._torch.divided.folder
        try:
            with Sessions(self.file, runtimes, threads, self._clock, weights) as sessions:
                yield sessions
        except GateError as error:
            where = stage.name or "the end"
            raise code_of(error.code).error(f"{where}: {error.message}") from error

    def carry(self, stage: BlockStage, line: BlockLine, label: str, sessions: Sessions) -> None:
        """Take a runtime's own values through a stage."""
        own = line.own.get(label)
        if own is None or label in line.refused:
            return
        answers, refused = sessions.ask(label, own, {name: name for name in stage.piece.needs})
        if refused is not None:
            line.refused[label] = refused
        elif answers is not None:
            own |= zip(stage.piece.outputs, answers, strict=False)

    def took(self, sessions: Sessions) -> None:
        """Add what the runtimes of a stage have taken, the first error of each, and 16-bit results."""
        for each in ranges_of(sessions.values()):  # a piece may make a value of another's again
            name = each.watched.name
            known = self.ranges.setdefault(name, each)
            self.ranges[name] = max(known, each, key=lambda one: one.largest)
        errors = {result.runtime: result.error for result in sessions.results()}
        for label, seconds in sessions.seconds.items():
            result = self.results[label]
            total, error = round(result.seconds + seconds, 4), result.error or errors.get(label)
            self.results[label] = result.model_copy(update={"seconds": total, "error": error})
