"""All cases led through a model block by block: PyTorch's values handed on, and the candidate's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, RuntimeSpec, Tolerance
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.model import Check, RuntimeResult
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.asked import AskedModule
from onnx_gate.verify.blocks.key import BlockKeys
from onnx_gate.verify.blocks.known import KnownBlock, all_pass
from onnx_gate.verify.blocks.memory import give_back
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.search import BlockSearch
from onnx_gate.verify.blocks.together import TogetherReference
from onnx_gate.verify.blocks.torch_side import GRAPH, BlockLine, Said, TorchSide
from onnx_gate.verify.compared import Asked, Comparer, Setting, Tally
from onnx_gate.verify.context import Context
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, failure_findings, without_optimisations
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.verify.subject import Locate

# Behind the id of the case whose values the runtimes carry on themselves.
CARRIED = "carried"


@dataclass
class Walked:
    """What has come of a way through a model, in the order of its stages.

    ``known`` is the number of blocks whose checks are an earlier run's.
    """

    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    runtimes: tuple[RuntimeResult, ...] = ()
    experience: dict[str, Experience] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    known: int = 0


class BlockWalk:
    """The way through a model."""

    def __init__(
        self,
        spec: ModelSpec,
        context: Context,
        torch: TorchSide,
        clock: Clock,
        limit: int,
        step: Callable[[str], None],
        locate: Locate | None = None,
        keep: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        self._spec, self._context, self._torch = spec, context, torch
        self._clock, self._step = clock, step
        self._pieces, self._skeleton = torch.pieces, torch.skeleton
        self._file = context.folder / "blocks" / "piece.onnx"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._keep, self._keys = keep, BlockKeys(torch)
        self._search = locate and BlockSearch(torch, context, limit, locate, self._file.parent)
        self._results = {
            r.label: RuntimeResult(runtime=r.label, seconds=0.0) for r in spec.runtimes
        }
        self._last_use = {
            name: place for place, s in enumerate(self._pieces.stages) for name in s.piece.needs
        }

    def run(self, cases: Sequence[Case], graph_inputs: Mapping[str, str], together: int) -> Walked:
        """Take all cases from stage to stage; raises ``GateError`` as runtimes do.

        One of them, at no edge where there is such a one, is carried on by the runtimes themselves, too.
        There, so many runs with moved rounding go side by side.
        """
        walked = Walked()
        lines = [self._line(case, graph_inputs) for case in cases]
        carried = next((line for line in lines if not line.case.is_edge), lines[0])
        carried.own = {r.label: dict(carried.known) for r in self._spec.runtimes}
        with self._skeleton.loaded(self._pieces.held):
            for place, stage in enumerate(self._pieces.stages):
                if stage.inside:
                    blocks = len(self._torch.divided.calls)
                    self._step(f"block {stage.number + 1} of {blocks}, {stage.name}")
                with self._skeleton.loaded(self._torch.parameters(stage)):
                    self._stage(stage, [line for line in lines if not line.over], walked)
                self._forget(lines, place)
        if carried.outputs is None:
            raise codes.OG402.error(
                f"no case was carried through all blocks: PyTorch refuses {carried.case.id}"
            )
        lines.clear()
        carried.answers.clear()
        give_back()
        with self._torch.whole():
            self._end(carried, walked, together)
        outputs = carried.outputs
        walked.experience = {n: walked.experience[n] for n in outputs.names}
        walked.runtimes = tuple(self._results.values())
        walked.findings += failure_findings(walked.runtimes)
        return walked

    def _line(self, case: Case, graph_inputs: Mapping[str, str]) -> BlockLine:
        return BlockLine(
            case, {graph: case.arrays[name] for name, graph in graph_inputs.items()}, {}
        )

    def _forget(self, lines: Iterable[BlockLine], place: int) -> None:
        """Drop the values that no later stage is fed with, and give their memory back."""
        for line in lines:
            for values in (line.known, *line.own.values()):
                for name in [n for n in values if self._last_use.get(n, -1) <= place]:
                    if name not in self._pieces.outputs:
                        del values[name]
        give_back()

    def _stage(self, stage: BlockStage, lines: Sequence[BlockLine], walked: Walked) -> None:
        """Judge one stage on PyTorch's values, and carry the runtimes' own through it."""
        if not lines or not stage.piece.outputs:
            for line in lines:  # what nobody in the graph reads is answered for, and not compared
                self._ask(stage, line, walked)
            return
        feeds = {name: lines[0].known[name] for name in stage.piece.needs}
        graph = self._pieces.write(stage.piece, feeds, self._file)
        said = deque(self._ask(stage, line, walked) for line in lines)
        key = "" if self._keep is None else self._keys.of(stage, graph, said)
        stored = KnownBlock.of(self._context.blocks, key, stage.name)
        comparer = self._comparer(self._judging(stage), walked.experience)
        checks: list[Check] = []
        first = said[0]
        with self._sessions(stage, self._spec.runtimes) as sessions:
            while said:  # what it takes to judge a case goes with it
                now = said.popleft()
                for label in sessions:
                    if stored is None:
                        made = list(self._judged(comparer, stage, now, label, sessions, now.line))
                        if walked.diagnosis is None and self._search is not None:
                            judging = self._judging(stage)
                            walked.diagnosis = self._search.diagnosis(judging, stage, now, made)
                        checks += made
                    self._carry(stage, now.line, label, sessions)
        for label, seconds in sessions.seconds.items():
            self._took(label, seconds, sessions)
        if stored is not None:
            walked.checks += stored.checks
            walked.findings += stored.findings
            walked.known += 1
            return
        failed = any(result.error is not None for result in self._results.values())
        findings = list(sessions.findings)
        plain = without_optimisations(self._spec.runtimes)
        if plain is not None and first.asked.reference is not None:
            give_back()
            with self._sessions(stage, (plain,)) as sessions:
                checks += self._judged(comparer, stage, first, plain.label, sessions, None)
            failed |= bool(sessions.failures)
        settled = comparer.settled(checks)
        findings += comparer.tally.findings
        walked.checks += settled
        walked.findings += findings
        if key and self._keep is not None and not failed and all_pass(settled):
            self._keep(key, KnownBlock(settled, tuple(findings)).value)

    def _judged(
        self,
        comparer: Comparer[CaseReference],
        stage: BlockStage,
        said: Said,
        label: str,
        sessions: Sessions,
        kept: BlockLine | None,
    ) -> Iterator[Check]:
        """Ask a runtime, and judge what PyTorch has, too; of what it has not ``kept`` takes the runtime's.

        While it is exported a model may make a mask that it leaves out otherwise, or one of another form:
        what it does is seen in the block that it is for.
        """
        graph = {GRAPH + name: name for name in stage.piece.needs}
        answers, refused = sessions.ask(label, said.case.arrays, graph)
        reference, other = said.asked.reference, set()
        if answers is not None and reference is not None and stage.name:
            known = dict(zip(reference.outputs.names, reference.outputs.arrays, strict=True))
            for name, value, answer in zip(stage.names, stage.piece.outputs, answers, strict=True):
                if not stage.inside and (name not in known or not _alike(known[name], answer)):
                    other.add(name)
                    if kept is not None:
                        kept.known[value] = answer
            every = zip(stage.names, answers, strict=True)
            answers = [answer for name, answer in every if name in known]
        for check in comparer.one(said.case, label, said.asked, (answers, refused), other):
            yield check.model_copy(update={"block": stage.name})

    def _ask(self, stage: BlockStage, line: BlockLine, walked: Walked) -> Said:
        """Return PyTorch's side of a stage, and keep what later stages need of it.

        What the graph is fed with is in the case's arrays, too.
        """
        fed = {GRAPH + name: line.known[name] for name in stage.piece.needs}
        part, inputs = self._torch.part(stage, line)
        case = replace(line.case, arrays={**line.case.arrays, **inputs, **fed}, expected={})
        eager = Eager(part, tuple(inputs))
        asked = AskedModule(self._judging(stage), eager, self._clock, walked.experience).ask(case)
        if asked.reference is None:
            line.over = True
            return Said(line, case, asked, eager)
        outputs = asked.reference.outputs
        if not stage.name:
            line.outputs = outputs
            return Said(line, case, asked, eager)
        by_name = dict(zip(outputs.names, outputs.arrays, strict=True))
        for name, value in zip(stage.names, stage.piece.outputs, strict=True):
            if name in by_name:
                line.known[value] = by_name[name]
        line.goes_on(part)
        return Said(line, case, asked, eager)

    def _judging(self, stage: BlockStage) -> ModelSpec:
        """Return the model's entry as it is for a stage: its own limits say nothing of values inside."""
        if not stage.name:
            return self._spec
        auto = self._spec.tolerance.auto
        tolerance = Tolerance(auto=DEFAULT_AUTO if auto is None else auto)
        runtimes = tuple(replace(each, tolerance=None) for each in self._spec.runtimes)
        return replace(self._spec, outputs=None, where={}, tolerance=tolerance, runtimes=runtimes)

    def _comparer(
        self, spec: ModelSpec, experience: dict[str, Experience]
    ) -> Comparer[CaseReference]:
        setting = Setting(
            spec=spec,
            graph_outputs=self._pieces.outputs,
            workspace=self._context.workspace,
            threads=self._context.threads,
        )
        return Comparer(setting, Tally(clock=self._clock, experience=experience))

    @contextmanager
    def _sessions(self, stage: BlockStage, runtimes: Sequence[RuntimeSpec]) -> Iterator[Sessions]:
        """Open the stage's file, whose weights stay where they are."""
        threads, weights = self._context.threads, self._torch.divided.folder
        try:
            with Sessions(self._file, runtimes, threads, self._clock, weights) as sessions:
                yield sessions
        except GateError as error:
            where = stage.name or "the end"
            raise code_of(error.code).error(f"{where}: {error.message}") from error

    def _carry(self, stage: BlockStage, line: BlockLine, label: str, sessions: Sessions) -> None:
        """Take a runtime's own values through a stage."""
        own = line.own.get(label)
        if own is None or label in line.refused:
            return
        answers, refused = sessions.ask(label, own, {name: name for name in stage.piece.needs})
        if refused is not None:
            line.refused[label] = refused
        elif answers is not None:
            own |= zip(stage.piece.outputs, answers, strict=False)

    def _took(self, label: str, seconds: float, sessions: Sessions) -> None:
        result = self._results[label]
        error = result.error or next(
            (r.error for r in sessions.results() if r.runtime == label), None
        )
        total = round(result.seconds + seconds, 4)
        self._results[label] = result.model_copy(update={"seconds": total, "error": error})

    def _end(self, line: BlockLine, walked: Walked, together: int) -> None:
        """Judge what the runtimes have come to by themselves, by the manifest's own tolerance."""
        spec, case, outputs = self._spec, line.case, line.outputs
        assert outputs is not None
        reference: CaseReference = TogetherReference(
            self._torch.eager,
            case.arrays,
            outputs,
            self._clock,
            partial(self._torch.moved, case),
            together,
        )
        selected = tuple(
            selection(spec, name, array.shape, case.arrays, case.sizes, case.id)
            for name, array in zip(outputs.names, outputs.arrays, strict=True)
        )
        experience = {name: Experience() for name in outputs.names}
        comparer = self._comparer(spec, experience)
        case = replace(case, id=f"{case.id}/{CARRIED}", expected={})
        checks: list[Check] = []
        for label, own in line.own.items():
            refused = line.refused.get(label)
            answers = (
                None if refused else [own[name] for name in self._pieces.outputs if name in own]
            )
            asked = Asked(reference, selected=selected)
            checks += comparer.one(case, label, asked, (answers, refused))
        walked.checks += comparer.settled(checks)
        walked.findings += comparer.tally.findings


def _alike(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape
