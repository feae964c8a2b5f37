"""All cases led through a model block by block: PyTorch's values handed on, and the candidate's own."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, RuntimeSpec, Tolerance
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.model import Check, RuntimeResult
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.runtimes.base import Array, Outputs
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.asked import AskedModule
from onnx_gate.verify.blocks.block_steps import (
    CaseSteps,
    MovedSteps,
    StepTogetherReference,
    go_through,
)
from onnx_gate.verify.blocks.key import BlockKeys
from onnx_gate.verify.blocks.known import KnownBlock, all_pass
from onnx_gate.verify.blocks.memory import give_back
from onnx_gate.verify.blocks.pairs import PairRun, pair_name
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.search import BlockSearch
from onnx_gate.verify.blocks.together import TogetherReference
from onnx_gate.verify.blocks.torch_side import GRAPH, BlockLine, Said, TorchSide
from onnx_gate.verify.compared import Asked, Comparer, Setting, Tally
from onnx_gate.verify.context import Context
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, failure_findings, without_optimisations
from onnx_gate.verify.steps.course import in_order, refused_at
from onnx_gate.verify.steps.measured_steps import StepRows
from onnx_gate.verify.steps.trajectory import Trajectory
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
        pairs: bool = True,
    ) -> None:
        self._spec, self._context, self._torch = spec, context, torch
        self._clock, self._step = clock, step
        self._pieces, self._skeleton = torch.pieces, torch.skeleton
        self._file = context.folder / "blocks" / "piece.onnx"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._keep, self._keys = keep, BlockKeys(torch, pairs)
        self._search = locate and BlockSearch(torch, context, limit, locate, self._file.parent)
        self._results = {
            r.label: RuntimeResult(runtime=r.label, seconds=0.0) for r in spec.runtimes
        }
        self._pairs = (
            PairRun(torch, clock, self._file, spec.runtimes, self._sessions) if pairs else None
        )
        self._last_use = {
            name: place for place, s in enumerate(self._pieces.stages) for name in s.piece.needs
        }
        if pairs:
            for number, piece in self._pieces.pairs.items():
                for name in piece.needs:
                    self._last_use[name] = max(self._last_use.get(name, 0), 2 * number + 1)
        self._passed: set[str] = set()
        self._known: set[str] = set()

    def run(
        self, cases: Sequence[CaseSteps], graph_inputs: Mapping[str, str], together: int
    ) -> Walked:
        """Take all cases, and their steps, from stage to stage; raises ``GateError`` as runtimes do.

        One of them, at no edge where there is such a one, is carried on by the runtimes themselves, too.
        There, so many runs with moved rounding go side by side.
        """
        walked = Walked()
        go_through(self._torch, cases)
        ways = [self._lines(each, graph_inputs) for each in cases]
        way = next((each for each in ways if not each[0].case.is_edge), ways[0])
        carried, lines = way[0], [line for each in ways for line in each]
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
        ways.clear()
        for line in way:
            line.answers.clear()
        give_back()
        self._own_steps(way, graph_inputs)
        with self._torch.whole():
            self._end([line for line in way if line.outputs is not None], walked, together)
        outputs = carried.outputs
        walked.experience = {n: walked.experience[n] for n in outputs.names}
        walked.runtimes = tuple(self._results.values())
        walked.findings += failure_findings(walked.runtimes)
        return walked

    def _lines(self, steps: CaseSteps, graph_inputs: Mapping[str, str]) -> list[BlockLine]:
        return [
            BlockLine(
                case, _fed(case.arrays, graph_inputs), {}, number=number, feedback=steps.feedback
            )
            for number, case in enumerate(steps.cases, 1)
        ]

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
        before = self._pairs and self._pairs.before(stage)
        pair = pair_name(before.name, stage.name) if before else ""
        stored = KnownBlock.of(self._context.blocks, key, (stage.name, pair or stage.name))
        comparer = self._comparer(self._judging(stage), walked.experience)
        checks: list[Check] = []
        rows: dict[tuple[str, str], StepRows] = {}
        first = said[0]
        joined = next((now for now in said if now.line.own), None)
        with self._sessions(stage, self._spec.runtimes) as sessions:
            while said:  # what it takes to judge a case goes with it
                now = said.popleft()
                steps = self._step_rows(stage, now.line) if now.asked.reference else None
                for label in sessions:
                    if stored is None and (now.asked.reference or now.line.number == 1):
                        own = steps and rows.setdefault((now.case.id, label), steps())
                        made = list(
                            self._judged(comparer, stage, now, label, sessions, now.line, own)
                        )
                        if walked.diagnosis is None and self._search is not None:
                            judging = self._judging(stage)
                            walked.diagnosis = self._search.diagnosis(judging, stage, now, made)
                        checks += () if own else made
                    self._carry(stage, now.line, label, sessions)
        for each in rows.values():
            checks += (c.model_copy(update={"block": stage.name}) for c in each.checks())
        for label, seconds in sessions.seconds.items():
            self._took(label, seconds, sessions)
        if stored is not None:
            both = [check for check in stored.checks if check.block == pair]
            walked.checks += (check for check in stored.checks if check.block == stage.name)
            self._passed.add(stage.name)
            self._known.add(stage.name)
            if before and before.name not in self._known:
                both = self._together(stage, before, joined, walked)
            walked.checks += both
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
        if stage.inside and not failed and all_pass(settled):
            self._passed.add(stage.name)
        if before:
            settled = (*settled, *self._together(stage, before, joined, walked))
        walked.checks += settled
        walked.findings += findings
        if key and self._keep is not None and not failed and all_pass(settled):
            self._keep(key, KnownBlock(settled, tuple(findings)).value)

    def _together(
        self, stage: BlockStage, before: BlockStage, said: Said | None, walked: Walked
    ) -> list[Check]:
        """Judge a block with the one before where each of them passes alone."""
        if self._pairs is None or said is None or not {before.name, stage.name} <= self._passed:
            return []
        give_back()
        comparer = self._comparer(self._judging(stage), defaultdict(Experience))
        checks, diagnosis = self._pairs.judged(comparer, stage, before, said)
        walked.findings += comparer.tally.findings
        walked.diagnosis = walked.diagnosis or diagnosis
        return checks

    def _judged(
        self,
        comparer: Comparer[CaseReference],
        stage: BlockStage,
        said: Said,
        label: str,
        sessions: Sessions,
        kept: BlockLine | None,
        rows: StepRows | None = None,
    ) -> Iterator[Check]:
        """Ask a runtime, and judge what PyTorch has, too; of what it has not ``kept`` takes the runtime's.

        ``rows`` takes in what a step comes to.

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
        answered = answers, refused
        settled = other if rows is None else {*other, *rows.settled}
        checks = list(comparer.one(said.case, label, said.asked, answered, settled))
        if rows is not None and reference is not None:
            ordered = (
                None if other else in_order(comparer.setting, reference.outputs.names, answered)
            )
            rows.take(said.line.number, checks, reference, ordered, said.asked.selected)
        for check in checks:
            yield check.model_copy(update={"block": stage.name})

    def _step_rows(self, stage: BlockStage, line: BlockLine) -> Callable[[], StepRows] | None:
        """Return what the steps of a case are taken in by; ``None`` where it has one step."""
        feedback = line.feedback
        if feedback is None:
            return None
        inside = replace(feedback, links=(), counted={}) if stage.name else feedback
        return lambda: StepRows(inside, line.case.sizes, measure=False)

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
            if line.number > 1:
                known = walked.findings
                known += refused_at(line.number, case.id, asked.refusal, self._spec, known)
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
        tally: Tally[CaseReference] = Tally(clock=self._clock, experience=experience)
        return Comparer(self._setting(spec), tally)

    def _setting(self, spec: ModelSpec) -> Setting:
        return Setting(
            spec=spec,
            graph_outputs=self._pieces.outputs,
            workspace=self._context.workspace,
            threads=self._context.threads,
        )

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

    def _own_steps(self, lines: Sequence[BlockLine], graph_inputs: Mapping[str, str]) -> None:
        """Take the runtimes through the later steps, each by what it has come to itself."""
        for before, line in itertools.pairwise(lines):
            self._step(f"step {line.number} of {len(lines)}")
            assert line.feedback is not None
            for label, own in before.own.items():
                every = [own[name] for name in self._pieces.outputs if name in own]
                answers = (None, None) if label in before.refused else (every, None)
                if before.outputs is None:
                    continue
                ordered = in_order(self._setting(self._spec), before.outputs.names, answers)
                if ordered is not None and line.outputs is not None:
                    mine = line.feedback.mine(line.case.arrays, ordered)
                    line.own[label] = _fed(mine, graph_inputs)
            for place, stage in enumerate(self._pieces.stages):
                if not line.own or not stage.piece.outputs:
                    continue
                fed = next(iter(line.own.values()))
                self._pieces.write(stage.piece, fed, self._file)
                runtimes = [r for r in self._spec.runtimes if r.label in line.own]
                with self._sessions(stage, runtimes) as sessions:
                    for label in sessions:
                        self._carry(stage, line, label, sessions)
                for label, seconds in sessions.seconds.items():
                    self._took(label, seconds, sessions)
                self._forget([line], place)

    def _end(self, lines: Sequence[BlockLine], walked: Walked, together: int) -> None:
        """Judge what the runtimes have come to by themselves, by the manifest's own tolerance."""
        spec, first = self._spec, lines[0]
        way, moved = None, None
        rows: dict[str, StepRows] = {}
        if first.feedback is not None:
            way = Trajectory(first.feedback, first.case)
            moved = MovedSteps(self._torch, first.feedback, [line.case for line in lines])
            rows = {n: StepRows(first.feedback, first.case.sizes, False) for n in first.own}
        experience: dict[str, Experience] = defaultdict(Experience)
        comparer = self._comparer(spec, experience)
        checks: list[Check] = []
        for line in lines:
            case, outputs = line.case, line.outputs
            assert outputs is not None
            reference = self._reference(line, outputs, way, moved, together)
            selected = tuple(
                selection(spec, name, array.shape, case.arrays, case.sizes, case.id)
                for name, array in zip(outputs.names, outputs.arrays, strict=True)
            )
            case = replace(case, id=f"{case.id}/{CARRIED}", expected={})
            asked = Asked(reference, selected=selected)
            for label, own in line.own.items():
                refused = line.refused.get(label)
                answers = (
                    None if refused else [own[name] for name in self._pieces.outputs if name in own]
                )
                answered, taken = (answers, refused), rows.get(label)
                settled = taken.settled if taken else ()
                made = list(comparer.one(case, label, asked, answered, settled))
                if taken is None:
                    checks += made
                else:
                    ordered = in_order(comparer.setting, outputs.names, answered)
                    taken.take(line.number, made, reference, ordered, selected)
            if way is not None:
                way.advance(outputs.arrays)
        checks += (check for taken in rows.values() for check in taken.checks())
        walked.checks += comparer.settled(checks)
        walked.findings += comparer.tally.findings

    def _reference(
        self,
        line: BlockLine,
        outputs: Outputs,
        way: Trajectory | None,
        moved: MovedSteps | None,
        together: int,
    ) -> CaseReference:
        """Return what PyTorch says of a case that was carried, or of one of its steps."""
        eager, clock = self._torch.eager, self._clock
        if way is None or moved is None:

            def alone(seeds: Sequence[int]) -> list[tuple[Array, ...] | None]:
                return self._torch.moved([line.case] * len(seeds), seeds)

            return TogetherReference(eager, line.case.arrays, outputs, clock, alone, together)
        return StepTogetherReference(eager, way, outputs, clock, moved, together)


def _fed(arrays: Mapping[str, Array], graph_inputs: Mapping[str, str]) -> dict[str, Array]:
    return {graph: arrays[name] for name, graph in graph_inputs.items()}


def _alike(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape
