"""All cases led through a model block by block: PyTorch's values handed on, and the candidate's own."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import Check, RuntimeResult
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.half import Range
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.asked import AskedModule
from onnx_gate.verify.blocks.at_operators import compared_inside
from onnx_gate.verify.blocks.block_steps import CaseSteps, go_through
from onnx_gate.verify.blocks.carried import Carried, fed
from onnx_gate.verify.blocks.in_a_row import behind_hidden
from onnx_gate.verify.blocks.known import BlockKeys, KnownBlock, all_pass
from onnx_gate.verify.blocks.memory import give_back
from onnx_gate.verify.blocks.pairs import PairRun, pair_name
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.portion import BlockPortion
from onnx_gate.verify.blocks.search import BlockSearch
from onnx_gate.verify.blocks.stage_runs import StageRuns
from onnx_gate.verify.blocks.torch_side import GRAPH, BlockLine, Said, TorchSide
from onnx_gate.verify.compared import Answers, Comparer
from onnx_gate.verify.context import Context
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.probing import finding_of
from onnx_gate.verify.proposal import Measured
from onnx_gate.verify.reach.sites import ComparedSide, DecisionSite, Seen
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, failure_findings, without_optimisations
from onnx_gate.verify.steps.course import in_order, refused_at
from onnx_gate.verify.steps.measured_steps import StepRows
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.verify.subject import Locate


@dataclass
class Walked:
    """What has come of a way through a model, in the order of its stages.

    ``known`` is the number of blocks whose checks are an earlier run's, ``measured`` what fewer bits cost
    at the end, ``ranges`` how large 16-bit results were. ``seen`` is what decisions were shown, ``None``
    where the module cannot be watched, and ``compared`` what was compared at its operator.
    """

    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    runtimes: tuple[RuntimeResult, ...] = ()
    experience: dict[str, Experience] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    known: int = 0
    measured: Sequence[Measured] = ()
    ranges: tuple[Range, ...] = ()
    seen: Mapping[DecisionSite, Seen] | None = None
    compared: set[ComparedSide] = field(default_factory=set)


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
        portion: BlockPortion | None = None,
    ) -> None:
        self._spec, self._context, self._torch = spec, context, torch
        self._portion = portion or BlockPortion(range(len(torch.divided.calls)))
        self._clock, self._step = clock, step
        self._pieces, self._skeleton = torch.pieces, torch.skeleton
        self._runs = runs = StageRuns(spec, context, torch, clock)
        self._keep, self._keys = keep, BlockKeys(torch, pairs)
        self._search = locate and BlockSearch(torch, context, limit, locate, runs.file.parent)
        pair = PairRun(torch, clock, runs.file, runs.optimising, runs.sessions)
        self._pairs = pair if pairs else None
        # What leads to these blocks is called on every machine; its decisions are the first one's.
        self._own, self._others = Watcher(torch.eager), Watcher(torch.eager)
        self._passed, self._known = set[tuple[int, bool]](), set[str]()

    def run(
        self, cases: Sequence[CaseSteps], graph_inputs: Mapping[str, str], together: int
    ) -> Walked:
        """Take all cases, and their steps, from stage to stage; raises ``GateError`` as runtimes do.

        One of them, at no edge where there is such a one, is carried on by the runtimes themselves, too,
        where the end is judged. There, so many runs with moved rounding go side by side.
        """
        walked = Walked()
        go_through(self._torch, cases)
        ways = [self._lines(each, graph_inputs) for each in cases]
        way = next((each for each in ways if not each[0].case.is_edge), ways[0])
        carried, lines = way[0], [line for each in ways for line in each]
        carried.joined = True
        if self._portion.ends:
            carried.own = {r.label: dict(carried.known) for r in self._spec.runtimes}
        with self._skeleton.loaded(self._pieces.held):
            for place, stage in enumerate(self._pieces.stages):
                if self._portion.over(stage):
                    break
                if stage.inside:
                    blocks = len(self._torch.divided.calls)
                    self._step(f"block {stage.number + 1} of {blocks}, {stage.name}")
                with self._skeleton.loaded(self._torch.parameters(stage)):
                    self._stage(stage, [line for line in lines if not line.over], walked)
                read = self._pieces.read_after(place, self._pairs is not None)
                for line in lines:
                    line.keep(read)
                give_back()
        walked.seen = self._seen()
        walked.ranges = tuple(self._runs.ranges.values())
        if not self._portion.ends:
            walked.runtimes, walked.experience = tuple(self._runs.results.values()), {}
            walked.findings += failure_findings(walked.runtimes)
            return walked
        if carried.outputs is None:
            raise codes.OG402.error(
                f"no case was carried through all blocks: PyTorch refuses {carried.case.id}"
            )
        lines.clear()
        ways.clear()
        for line in way:
            line.answers.clear()
        give_back()
        end = Carried(self._torch, self._runs, self._clock, self._step)
        end.own_steps(way, graph_inputs)
        with self._torch.whole():
            lines = [line for line in way if line.outputs is not None]
            checks, findings, walked.measured = end.end(lines, together)
        walked.checks += checks
        walked.findings += findings
        outputs = carried.outputs
        walked.experience = {n: walked.experience[n] for n in outputs.names}
        walked.runtimes = tuple(self._runs.results.values())
        walked.findings += failure_findings(walked.runtimes)
        return walked

    def _watcher(self, stage: BlockStage) -> Watcher:
        return self._own if self._portion.has(stage) else self._others

    def _seen(self) -> dict[DecisionSite, Seen] | None:
        if self._own.lost or self._others.lost:
            return None
        return {s: each for s, each in self._own.seen.items() if s not in self._others.seen}

    def _lines(self, steps: CaseSteps, graph_inputs: Mapping[str, str]) -> list[BlockLine]:
        held = self._torch.divided.held
        return [
            BlockLine(
                case,
                held(fed(case.arrays, graph_inputs)),
                {},
                number=number,
                feedback=steps.feedback,
            )
            for number, case in enumerate(steps.cases, 1)
        ]

    def _stage(self, stage: BlockStage, lines: Sequence[BlockLine], walked: Walked) -> None:
        """Judge one stage on PyTorch's values, and carry the runtimes' own through it."""
        self._watcher(stage).loaded(self._skeleton.module)
        if not lines or not stage.piece.outputs:
            for line in lines:  # what nobody in the graph reads is answered for, and not compared
                self._ask(stage, line, walked)
            self._passed.add((stage.number, stage.inside))
            return
        if self._portion.has(stage):
            self._judge(stage, lines, walked)
        elif self._pairs and self._portion.leads_in(stage, self._pieces.pairs):
            self._judge(stage, lines, Walked(experience=walked.experience), reported=False)
        else:
            self._pass_on(stage, lines, walked)

    def _judge(
        self,
        stage: BlockStage,
        lines: Sequence[BlockLine],
        walked: Walked,
        *,
        reported: bool = True,
    ) -> None:
        """Judge a stage; where it is not ``reported`` only whether it passes is wanted, for a pair."""
        feeds = {name: lines[0].known[name] for name in stage.piece.needs}
        graph = self._pieces.write(stage.piece, feeds, self._runs.file)
        said = deque(self._ask(stage, line, walked) for line in lines)
        key = "" if self._keep is None else self._keys.of(stage, graph, said)
        before = self._pairs and self._pairs.before(stage)
        pair = pair_name(before.name, stage.name) if before else ""
        stored = KnownBlock.of(self._context.blocks, key, (stage.name, pair or stage.name))
        comparer = self._runs.comparer(self._runs.judging(stage), walked.experience)
        checks: list[Check] = []
        rows: dict[tuple[str, str], StepRows] = {}
        first = said[0]
        joined = next((now for now in said if now.line.joined and reported), None)
        with self._runs.sessions(stage, self._spec.runtimes) as sessions:
            while said:  # what it takes to judge a case goes with it
                now = said.popleft()
                steps = self._step_rows(stage, now.line) if now.asked.reference else None
                for label in sessions:
                    if stored is None and (now.asked.reference or now.line.number == 1):
                        own = steps and rows.setdefault((now.case.id, label), steps())
                        made = list(
                            self._judged(comparer, stage, now, label, sessions, now.line, own)
                        )
                        if reported and walked.diagnosis is None and self._search is not None:
                            judging = self._runs.judging(stage)
                            walked.diagnosis = self._search.diagnosis(judging, stage, now, made)
                        checks += () if own else made
                    self._runs.carry(stage, now.line, label, sessions)
        for each in rows.values():
            checks += (c.model_copy(update={"block": stage.name}) for c in each.checks())
        self._runs.took(sessions)
        if stored is not None:
            both = [check for check in stored.checks if check.block == pair]
            walked.checks += (check for check in stored.checks if check.block == stage.name)
            self._passed.add((stage.number, stage.inside))
            self._known.add(stage.name)
            if before and before.name not in self._known:
                both = self._together(stage, before, joined, walked)
            walked.checks += both
            walked.findings += stored.findings
            walked.compared |= stored.compared
            walked.known += 1
            return
        failed = bool(sessions.failures)
        findings = list(sessions.findings)
        plain = without_optimisations(self._spec.runtimes)
        if plain is not None and first.asked.reference is not None:
            give_back()
            with self._runs.sessions(stage, (plain,)) as sessions:
                checks += self._judged(comparer, stage, first, plain.label, sessions, None)
            failed |= bool(sessions.failures)
        settled = comparer.settled(checks)
        findings += comparer.tally.findings
        if not failed and all_pass(settled):
            self._passed.add((stage.number, stage.inside))
        compared: frozenset[ComparedSide] = frozenset()
        if stage.inside and joined is not None and not failed and all_pass(settled):
            give_back()
            probes = compared_inside(
                self._torch, stage, graph, joined, self._own, len(lines), self._spec.inputs
            )
            compared = frozenset((each.site, each.side) for each in probes)
            seen, workspace = self._own.seen, self._context.workspace.resolve()
            findings += (finding_of(p, seen[p.site], workspace) for p in probes if p.differs)
        if before:
            settled = (*settled, *self._together(stage, before, joined, walked))
        walked.checks += settled
        walked.findings += findings
        walked.compared |= compared
        if key and reported and self._keep is not None and not failed and all_pass(settled):
            self._keep(key, KnownBlock(settled, tuple(findings), compared).value)

    def _together(
        self, stage: BlockStage, before: BlockStage, said: Said | None, walked: Walked
    ) -> list[Check]:
        """Judge a block with the one before where both, and what is between them, pass alone."""
        alone = {(before.number, True), (stage.number, False), (stage.number, True)}
        if self._pairs is None or said is None or not alone <= self._passed:
            return []
        give_back()
        comparer = self._runs.comparer(self._runs.judging(stage), defaultdict(Experience))
        checks, diagnosis = self._pairs.judged(comparer, stage, before, said)
        walked.findings += comparer.tally.findings
        walked.diagnosis = walked.diagnosis or diagnosis
        return checks

    def _pass_on(self, stage: BlockStage, lines: Sequence[BlockLine], walked: Walked) -> None:
        """Take values through a stage that another machine judges: what PyTorch has not is a runtime's."""
        asking = []
        for line in lines:
            if line.own or not stage.inside:
                asking.append(line)
            else:
                self._ask(stage, line, walked)
        if not asking:
            return
        feeds = {name: lines[0].known[name] for name in stage.piece.needs}
        self._pieces.write(stage.piece, feeds, self._runs.file)
        with self._runs.sessions(stage, self._spec.runtimes) as sessions:
            for line in asking:
                said = self._ask(stage, line, walked)
                for label in sessions:
                    if not stage.inside:
                        self._answers(stage, said, label, sessions, line)
                    self._runs.carry(stage, line, label, sessions)
        self._runs.took(sessions)

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
        """Ask a runtime, and judge what PyTorch has, too; ``kept`` takes the runtime's where it has not.

        ``rows`` takes in what a step comes to.
        """
        answered, other = self._answers(stage, said, label, sessions, kept)
        reference = said.asked.reference
        settled = other if rows is None else {*other, *rows.settled}
        checks = list(comparer.one(said.case, label, said.asked, answered, settled))
        if rows is not None and reference is not None:
            ordered = (
                None if other else in_order(comparer.setting, reference.outputs.names, answered)
            )
            rows.take(said.line.number, checks, reference, ordered, said.asked.selected)
        for check in checks:
            yield check.model_copy(update={"block": stage.name})

    def _answers(
        self,
        stage: BlockStage,
        said: Said,
        label: str,
        sessions: Sessions,
        kept: BlockLine | None,
    ) -> tuple[Answers, set[str]]:
        """Return what a runtime answers of what PyTorch has, and the names of what is not to be judged.

        While it is exported a model may make a mask that it leaves out otherwise, or one of another form:
        what it does is seen in the block that it is for.
        """
        graph = {GRAPH + name: name for name in stage.piece.needs}
        answers, refused = sessions.ask(label, said.case.arrays, graph)
        reference, other = said.asked.reference, set[str]()
        if answers is not None and reference is not None and stage.name:
            known = dict(zip(reference.outputs.names, reference.outputs.arrays, strict=True))
            for name, value, answer in zip(stage.names, stage.piece.outputs, answers, strict=True):
                if not stage.inside and (name not in known or not _alike(known[name], answer)):
                    other.add(name)
                    if kept is not None:
                        kept.known[value] = answer
            every = zip(stage.names, answers, strict=True)
            answers = [answer for name, answer in every if name in known]
        return (answers, refused), other

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
        given = {GRAPH + name: line.known[name] for name in stage.piece.needs}
        part, inputs = self._torch.part(stage, line)
        case = replace(line.case, arrays={**line.case.arrays, **inputs, **given}, expected={})
        eager = Eager(part, tuple(inputs))
        spec = self._runs.judging(stage)
        watcher = self._watcher(stage)
        watcher.eager = eager
        asked = AskedModule(spec, eager, self._clock, walked.experience, watcher).ask(case)
        if asked.reference is None:
            line.over = True
            if line.number > 1:
                known = walked.findings
                known += refused_at(line.number, case.id, asked.refusal, self._spec, known)
            return Said(line, case, asked, eager)
        outputs = asked.reference.outputs
        if stage.name:
            by_name = dict(zip(outputs.names, outputs.arrays, strict=True))
            values = zip(stage.names, stage.piece.outputs, strict=True)
            own = {v: by_name[n] for n, v in values if n in by_name}
            line.known |= self._torch.divided.held(own)
            if stage.inside and self._torch.divided.calls[stage.number].hidden and line.given:
                line.again[stage.number] = line.given
            line.goes_on(part, len(self._torch.hidden(stage.number)))
        else:
            line.outputs = outputs
        return behind_hidden(self._torch, stage, Said(line, case, asked, eager), self._clock)


def _alike(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape
