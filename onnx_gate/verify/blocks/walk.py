"""All cases led through a model block by block: PyTorch's values handed on, and the candidate's own."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import onnx
import psutil
from onnx.external_data_helper import ExternalDataInfo
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, RuntimeSpec, Tolerance
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.layout import REPRO
from onnx_gate.report.model import Check, RuntimeResult
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.asked import AskedModule
from onnx_gate.verify.blocks.divided import Divided
from onnx_gate.verify.blocks.known import KeyHash, KnownBlock, StoredBytes, all_pass
from onnx_gate.verify.blocks.need import TIMES, Load
from onnx_gate.verify.blocks.parts import PARAMETER, Between, Block
from onnx_gate.verify.blocks.pieces import BlockStage, Pieces
from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.blocks.staged import Leaves, Staged, Unfit
from onnx_gate.verify.blocks.together import TogetherReference
from onnx_gate.verify.compared import Asked, Comparer, Setting, Tally
from onnx_gate.verify.context import Context
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.sessions import Sessions, failure_findings, without_optimisations
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.verify.subject import Locate, Subject
from onnx_gate.workers.forked import run_forked

# Between blocks seeds are others than in them, and two that are a pair still are.
_OUTSIDE = 1 << 20
# Behind the id of the case whose values the runtimes carry on themselves.
CARRIED = "carried"
# The search for a node has so many seconds, and so many bytes for values.
_SECONDS = 60.0
_VALUES = 256 << 20
_COPIES = 2.5
# Stands before the graph's names of values that PyTorch's side of a stage is not given.
_GRAPH = "graph "


@dataclass
class _Line:
    """One case on its way. ``known`` are PyTorch's values at the borders, by the graph's names.

    ``own`` are those that a runtime has carried on itself, by its label; one that refuses them is in
    ``refused``. ``answers`` are what blocks have returned, ``given`` is what the next is called with, and
    ``outputs`` what the module returns in the end.
    """

    case: Case
    known: dict[str, Array]
    own: dict[str, dict[str, Array]]
    refused: dict[str, Refusal] = field(default_factory=dict)
    answers: list[Leaves] = field(default_factory=list)
    given: Leaves | None = None
    outputs: Outputs | None = None
    over: bool = False


# A case on its way, as it is for one stage, and PyTorch's side of that.
_Said = tuple[_Line, Case, Asked[CaseReference], Eager]


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
        skeleton: Skeleton,
        staged: Staged,
        eager: Eager,
        divided: Divided,
        clock: Clock,
        limit: int,
        step: Callable[[str], None],
        locate: Locate | None = None,
        keep: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        self._keep, self._bytes = keep, StoredBytes()
        self._limit, self._step, self._locate = limit, step, locate
        self._spec, self._context, self._skeleton = spec, context, skeleton
        self._staged, self._eager, self._divided, self._clock = staged, eager, divided, clock
        self.pieces = Pieces(divided)
        self._file = context.folder / "blocks" / "piece.onnx"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._results = {
            r.label: RuntimeResult(runtime=r.label, seconds=0.0) for r in spec.runtimes
        }
        self._last_use = {
            name: place for place, s in enumerate(self.pieces.stages) for name in s.piece.needs
        }

    def parameters(self, stage: BlockStage) -> tuple[str, ...]:
        """Return the parameters that a stage needs beside those that are held throughout."""
        own = set(stage.piece.parameters)
        if stage.inside:
            own |= set(self._skeleton.named_below(self._divided.calls[stage.number].path))
        return tuple(sorted(own - self.pieces.held))

    def load(self, stage: BlockStage) -> Load:
        """Return what a stage's parameters are, and take."""
        nbytes = self._skeleton.nbytes(self.parameters(stage))
        path = self._divided.calls[stage.number].path if stage.inside else ""
        return Load(nbytes, bool(path) and type(self._staged.blocks[path]) is nn.Embedding)

    @property
    def apart(self) -> bool:
        """Whether blocks read no parameters but their own, so that each can be called with these alone."""
        distinct, paths = self._skeleton.distinct, [call.path for call in self._divided.calls]
        return self.pieces.held == self._divided.outside and all(
            {*distinct(s.piece.parameters)}
            <= {*distinct((*self._skeleton.named_below(paths[s.number]), *self.pieces.held))}
            for s in self.pieces.stages
            if s.inside
        )

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let the module be called as a whole inside of a ``with``, each block with its parameters."""
        needed: dict[str, set[str]] = {}
        for stage in self.pieces.stages[:-1]:
            path = self._divided.calls[stage.number].path
            needed.setdefault(path, set()).update(self.parameters(stage))

        def loaded(path: str) -> AbstractContextManager[None]:
            if path not in needed:
                raise Unfit(
                    f"forward calls the block {path}, which it did not while it was exported: the graph "
                    "has no such block; verify the model as a whole, which shows what that changes"
                )
            return self._skeleton.loaded(needed[path])

        with self._skeleton.loaded(self.pieces.held), self._staged.streamed(loaded):
            yield

    def run(self, cases: Sequence[Case], graph_inputs: Mapping[str, str], together: int) -> Walked:
        """Take all cases from stage to stage; raises ``GateError`` as runtimes do.

        One of them, at no edge where there is such a one, is carried on by the runtimes themselves, too.
        There, so many runs with moved rounding go side by side.
        """
        walked = Walked()
        lines = [self._line(case, graph_inputs) for case in cases]
        carried = next((line for line in lines if not line.case.is_edge), lines[0])
        carried.own = {r.label: dict(carried.known) for r in self._spec.runtimes}
        with self._skeleton.loaded(self.pieces.held):
            for place, stage in enumerate(self.pieces.stages):
                if stage.inside:
                    blocks = len(self._divided.calls)
                    self._step(f"block {stage.number + 1} of {blocks}, {stage.name}")
                with self._skeleton.loaded(self.parameters(stage)):
                    self._stage(stage, [line for line in lines if not line.over], walked)
                self._forget(lines, place)
        if carried.outputs is None:
            raise codes.OG402.error(
                f"no case was carried through all blocks: PyTorch refuses {carried.case.id}"
            )
        lines.clear()
        carried.answers.clear()
        give_back()
        with self.whole():
            self._end(carried, walked, together)
        outputs = carried.outputs
        walked.experience = {n: walked.experience[n] for n in outputs.names}
        walked.runtimes = tuple(self._results.values())
        walked.findings += failure_findings(walked.runtimes)
        return walked

    def _line(self, case: Case, graph_inputs: Mapping[str, str]) -> _Line:
        return _Line(case, {graph: case.arrays[name] for name, graph in graph_inputs.items()}, {})

    def _forget(self, lines: Iterable[_Line], place: int) -> None:
        """Drop the values that no later stage is fed with, and give their memory back."""
        for line in lines:
            for values in (line.known, *line.own.values()):
                for name in [n for n in values if self._last_use.get(n, -1) <= place]:
                    if name not in self.pieces.outputs:
                        del values[name]
        give_back()

    def _stage(self, stage: BlockStage, lines: Sequence[_Line], walked: Walked) -> None:
        """Judge one stage on PyTorch's values, and carry the runtimes' own through it."""
        if not lines or not stage.piece.outputs:
            for line in lines:  # what nobody in the graph reads is answered for, and not compared
                self._ask(stage, line, walked)
            return
        feeds = {name: lines[0].known[name] for name in stage.piece.needs}
        graph = self.pieces.write(stage.piece, feeds, self._file)
        said = deque((line, *self._ask(stage, line, walked)) for line in lines)
        key = self._key(stage, graph, said)
        stored = KnownBlock.of(self._context.blocks, key, stage.name)
        comparer = self._comparer(self._judging(stage), walked.experience)
        checks: list[Check] = []
        first = said[0]
        with self._sessions(stage, self._spec.runtimes) as sessions:
            while said:  # what it takes to judge a case goes with it
                line, case, asked, eager = said.popleft()
                for label in sessions:
                    if stored is None:
                        found = self._judged(comparer, stage, line, case, asked, label, sessions)
                        made = list(found)
                        self._look_into(stage, case, asked, eager, made, walked)
                        checks += made
                    self._carry(stage, line, label, sessions)
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
        _, case, asked, _ = first
        if plain is not None and asked.reference is not None:
            give_back()
            with self._sessions(stage, (plain,)) as sessions:
                checks += self._judged(comparer, stage, None, case, asked, plain.label, sessions)
            failed |= bool(sessions.failures)
        settled = comparer.settled(checks)
        findings += comparer.tally.findings
        walked.checks += settled
        walked.findings += findings
        if key and self._keep is not None and not failed and all_pass(settled):
            self._keep(key, KnownBlock(settled, tuple(findings)).value)

    def _key(self, stage: BlockStage, graph: onnx.ModelProto, said: Iterable[_Said]) -> str:
        """Return the worker's half of a block's key: what its checks come from beside code and options.

        Empty where nothing is to be kept of a stage: between blocks it would be no less work.
        """
        if self._keep is None or not stage.inside:
            return ""
        path = self._divided.calls[stage.number].path
        key, parameters = KeyHash(), self._skeleton.parameters
        for node in graph.graph.node:
            del node.metadata_props[:]  # the lines of code, with their folders
        key.add(stage.name, stage.names, graph.SerializeToString(deterministic=True))
        for each in graph.graph.initializer:
            if each.data_location == onnx.TensorProto.EXTERNAL:
                place = ExternalDataInfo(each)
                file = self._divided.folder / place.location
                key.add(self._bytes.digest(file, place.offset or 0, place.length or None))
        for name in sorted({*stage.piece.parameters, *self._skeleton.named_below(path)}):
            stored = parameters[name].stored
            key.add(name, self._bytes.digest(stored.file, stored.offset, stored.nbytes))
        for name, buffer in self._staged.blocks[path].named_buffers():
            key.add(name, to_array(buffer))
        for line, case, asked, _ in said:
            if asked.reference is None or line.given is None:
                return ""
            key.add(replace(case, arrays={}), line.given.plain, asked.slow)
            for name, array in case.arrays.items():
                key.add(name, array)
            outputs = asked.reference.outputs
            key.add(outputs.names, *outputs.arrays)
        return key.hex

    def _judged(
        self,
        comparer: Comparer[CaseReference],
        stage: BlockStage,
        line: _Line | None,
        case: Case,
        asked: Asked[CaseReference],
        label: str,
        sessions: Sessions,
    ) -> Iterator[Check]:
        """Ask a runtime, and judge what PyTorch has, too; of what it has not the runtime's value is kept.

        While it is exported a model may make a mask that it leaves out otherwise, or one of another form:
        what it does is seen in the block that it is for.
        """
        graph = {_GRAPH + name: name for name in stage.piece.needs}
        answers, refused = sessions.ask(label, case.arrays, graph)
        other = set()
        if answers is not None and asked.reference is not None and stage.name:
            said = asked.reference.outputs
            known = dict(zip(said.names, said.arrays, strict=True))
            for name, value, answer in zip(stage.names, stage.piece.outputs, answers, strict=True):
                if not stage.inside and (name not in known or not _alike(known[name], answer)):
                    other.add(name)
                    if line is not None:
                        line.known[value] = answer
            every = zip(stage.names, answers, strict=True)
            answers = [answer for name, answer in every if name in known]
        for check in comparer.one(case, label, asked, (answers, refused), other):
            yield check.model_copy(update={"block": stage.name})

    def _ask(
        self, stage: BlockStage, line: _Line, walked: Walked
    ) -> tuple[Case, Asked[CaseReference], Eager]:
        """Return PyTorch's side of a stage, and keep what later stages need of it.

        What the graph is fed with is in the case's arrays, too.
        """
        fed = {_GRAPH + name: line.known[name] for name in stage.piece.needs}
        part, inputs = self._part(stage, line)
        case = replace(line.case, arrays={**line.case.arrays, **inputs, **fed}, expected={})
        eager = Eager(part, tuple(inputs))
        asked = AskedModule(self._judging(stage), eager, self._clock, walked.experience).ask(case)
        if asked.reference is None:
            line.over = True
            return case, asked, eager
        said = asked.reference.outputs
        if not stage.name:
            line.outputs = said
            return case, asked, eager
        by_name = dict(zip(said.names, said.arrays, strict=True))
        for name, value in zip(stage.names, stage.piece.outputs, strict=True):
            if name in by_name:
                line.known[value] = by_name[name]
        if isinstance(part, Block):
            assert part.said is not None
            line.answers.append(part.said)
        else:
            line.given = part.given
        return case, asked, eager

    def _part(self, stage: BlockStage, line: _Line) -> tuple[Block | Between, dict[str, Array]]:
        """Return what PyTorch has of a stage as a model, and its inputs."""
        calls = [call.path for call in self._divided.calls]
        names = dict(zip(stage.places, stage.names, strict=True))
        part: Block | Between
        if stage.inside:
            assert line.given is not None
            path = calls[stage.number]
            part = Block(self._staged.blocks[path], line.given, path, names)
            given = [to_array(tensor) for tensor in line.given.tensors]
        else:
            part = Between(self._eager, self._staged, line.answers, calls, names)
            given = [line.case.arrays[name] for name in self._eager.binding.order]
        return part, {f"{PARAMETER}.{index}": array for index, array in enumerate(given)}

    def _moved(self, case: Case, seeds: Sequence[int]) -> list[tuple[Array, ...] | None]:
        """Return what the module answers with its rounding moved, in a run for each of some seeds.

        They go from stage to stage together. What lies between blocks is computed again for each, and is
        moved in the same way again.
        """
        runs = [(_Line(case, {}, {}), seed, MovedRounding(seed)) for seed in seeds]
        for stage in self.pieces.stages:
            with self._skeleton.loaded(self.parameters(stage)):
                for line, seed, inside in runs:
                    if line.over:
                        continue
                    part, inputs = self._part(stage, line)
                    mode = inside if stage.inside else MovedRounding(seed + _OUTSIDE)
                    try:
                        line.outputs = Eager(part, tuple(inputs)).run(inputs, mode=mode)
                    except (Refusal, GateError, Unfit):
                        line.over = True
                        continue
                    inside.has_moved |= mode.has_moved
                    if isinstance(part, Between):
                        line.given = part.given
                    elif part.said is not None:
                        line.answers.append(part.said)
        return [
            line.outputs.arrays
            if line.outputs is not None and inside.has_moved and not line.over
            else None
            for line, _, inside in runs
        ]

    def _look_into(
        self,
        stage: BlockStage,
        case: Case,
        asked: Asked[CaseReference],
        eager: Eager,
        checks: Sequence[Check],
        walked: Walked,
    ) -> None:
        """Find the first wrong node of the first check that diverges, where there is room for it."""
        bad = next((c for c in checks if c.verdict == "diverged" and not c.advice), None)
        if bad is None or walked.diagnosis is not None or self._locate is None:
            return
        reference = asked.reference
        names = reference.outputs.names if reference is not None else ()
        subject = None
        taken = psutil.Process().memory_info().rss
        taken += TIMES * self._skeleton.nbytes(stage.piece.parameters)
        # A fork has what this process has, and PyTorch's values and the graph's beside them.
        room = _COPIES * taken < self._limit
        if room and bad.output in names and len(names) == len(stage.piece.outputs):
            path = self._file.with_name("wrong.onnx")
            feeds = {name: case.arrays[_GRAPH + name] for name in stage.piece.needs}
            proto = self.pieces.write_whole(stage.piece, feeds, path)
            subject = Subject(
                spec=self._judging(stage),
                eager=eager,
                exported=Exported(path, "dynamo", proto),
                graph_inputs={_GRAPH + name: name for name in stage.piece.needs},
                arrays=case.arrays,
                output=names.index(bad.output),
                runtime=next(r for r in self._spec.runtimes if r.label == bad.runtime),
                check=bad,
                workspace=self._context.workspace,
                folder=self._file.with_name("diagnose"),
                repro=self._context.folder / REPRO,
                memory=_VALUES,
            )
        part = stage.name or "what follows the last block"
        place = part if stage.inside or not stage.name else f"what leads to {part}"
        locate = self._locate
        data, trouble = run_forked(lambda: locate(place, bad, subject, _SECONDS), 2 * _SECONDS)
        if not trouble:
            walked.diagnosis = Diagnosis.model_validate(data)

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
            graph_outputs=self.pieces.outputs,
            workspace=self._context.workspace,
            threads=self._context.threads,
        )
        return Comparer(setting, Tally(clock=self._clock, experience=experience))

    @contextmanager
    def _sessions(self, stage: BlockStage, runtimes: Sequence[RuntimeSpec]) -> Iterator[Sessions]:
        """Open the stage's file, whose weights stay where they are."""
        threads, weights = self._context.threads, self._divided.folder
        try:
            with Sessions(self._file, runtimes, threads, self._clock, weights) as sessions:
                yield sessions
        except GateError as error:
            where = stage.name or "the end"
            raise code_of(error.code).error(f"{where}: {error.message}") from error

    def _carry(self, stage: BlockStage, line: _Line, label: str, sessions: Sessions) -> None:
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

    def _end(self, line: _Line, walked: Walked, together: int) -> None:
        """Judge what the runtimes have come to by themselves, by the manifest's own tolerance."""
        spec, case, outputs = self._spec, line.case, line.outputs
        assert outputs is not None
        reference: CaseReference = TogetherReference(
            self._eager, case.arrays, outputs, self._clock, partial(self._moved, case), together
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
                None if refused else [own[name] for name in self.pieces.outputs if name in own]
            )
            asked = Asked(reference, selected=selected)
            checks += comparer.one(case, label, asked, (answers, refused))
        walked.checks += comparer.settled(checks)
        walked.findings += comparer.tally.findings


def _alike(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape


def give_back() -> None:
    """Return freed memory to the system, where the allocator keeps it for itself (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
