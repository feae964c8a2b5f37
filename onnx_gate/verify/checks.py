"""Every case on every runtime: both sides run, each output is judged."""

from __future__ import annotations

import copy
import fnmatch
import functools
import glob
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.intervals import Interval
from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check, RuntimeResult
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.runtimes.half import Range
from onnx_gate.runtimes.torch_eager import Eager, seed_everything
from onnx_gate.verify.asked import Ahead, AskedModule
from onnx_gate.verify.compared import STORED, Asked, Comparer, Setting, Tally, advice
from onnx_gate.verify.experience import KEPT_BYTES
from onnx_gate.verify.half import ranges_of
from onnx_gate.verify.inputs.cases import Case, Cases, cases, selected
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.loading import UNHEARD, Loading
from onnx_gate.verify.pairing import RuleBook, order_of
from onnx_gate.verify.prepare import focus_of
from onnx_gate.verify.reach.explore import Explorer
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, failure_findings, without_optimisations
from onnx_gate.verify.steps.course import is_stepped, stepped
from onnx_gate.verify.steps.feedback import feedback_of
from onnx_gate.verify.steps.trajectory import Trajectory, inputs_at
from onnx_gate.workers import tracebacks


@dataclass(frozen=True, kw_only=True)
class ModuleSetting(Setting):
    """What a module and its file are compared by.

    ``keeps``: every case stays, with what is said of it. ``written`` are the buffers that ``forward``
    writes.
    """

    eager: Eager
    path: Path
    graph_inputs: Mapping[str, str]
    example: Mapping[str, int]
    patterns: tuple[str, ...]
    written: Collection[str]
    numbers: Sequence[int] = ()
    keeps: bool = False
    loading: Loading = UNHEARD

    @property
    def graph_ranges(self) -> dict[str, Interval]:
        """Return between which ends the inputs of the file lie, as far as the manifest says."""
        inputs = {own: self.spec.inputs[name] for name, own in self.graph_inputs.items()}
        given = {own: each.range for own, each in inputs.items() if each.range is not None}
        ranges = {own: (float(low), float(high)) for own, (low, high) in given.items()}
        return {own: (0.0, 1.0) for own, each in inputs.items() if each.dtype == "bool"} | ranges


@dataclass(kw_only=True)
class ModuleTally(Tally[CaseReference]):
    """What the cases of a module have come to: ``checks`` when all are done.

    ``without_any`` are the suites that have made no case, ``runtimes`` what became of each,
    ``answered`` the cases that are kept with what PyTorch says of them.
    """

    checks: tuple[Check, ...] = ()
    without_any: tuple[str, ...] = ()
    runtimes: tuple[RuntimeResult, ...] = ()
    ranges: tuple[Range, ...] = ()
    answered: list[tuple[Case, Asked[CaseReference]]] = field(default_factory=list)


class Checker(Comparer[CaseReference]):
    """Runs one exported model against its module."""

    setting: ModuleSetting
    tally: ModuleTally

    def __init__(self, setting: ModuleSetting, tally: ModuleTally | None = None) -> None:
        tally = tally if tally is not None else ModuleTally()
        super().__init__(setting, tally)
        self._module = AskedModule(setting.spec, setting.eager, tally.clock, tally.experience)
        self._walked: set[str] = set()
        self.explorer = Explorer(setting.spec, self._module.watcher, setting.numbers)

    def alone(self) -> Checker:
        """Return the same with one thread, as a fork has to be."""
        other = copy.copy(self)
        other.setting = replace(self.setting, threads=1)
        other._rules = RuleBook(self.setting.spec, self.setting.workspace, 1)
        return other

    def of(self, spec: ModelSpec) -> Checker:
        """Return one by another entry of the manifest, with what this has seen."""
        return Checker(replace(self.setting, spec=spec), self.tally)

    def run(self, ahead: Ahead | None = None) -> ModuleTally:
        """Try every case of the model's suites; raises ``GateError`` as suites and runtimes do.

        What a fork was told ``ahead`` of them is not asked again.
        """
        ahead = ahead or Ahead()
        chosen = self._cases(self.setting.patterns)
        plain = without_optimisations(self.setting.spec.runtimes)
        with self._sessions(self.setting.spec.runtimes) as sessions:
            self.explorer.answers = functools.partial(self._answers, sessions)
            checks: list[Check] = []
            first: tuple[Case, Asked[CaseReference] | None] | None = None
            for case in itertools.chain(chosen, self._reached()):
                began = time.perf_counter()
                told = None if case.kind == REACHED else ahead.of(case.arrays)
                asked = self._module.ask(case, told=told)
                if asked.reference is not None and case.kind != REACHED:
                    self.explorer.learn(case)
                if self.setting.keeps:
                    self.tally.answered.append((case, asked))
                if first is None:
                    first = case, asked if asked.nbytes <= KEPT_BYTES else None
                made = [*self._case(case, asked, sessions)]
                own = (time.perf_counter() - began) / max(len(made), 1)
                checks += [check.model_copy(update={"seconds": own}) for check in made]
        self.tally.runtimes = sessions.results()
        self.tally.ranges = ranges_of(sessions.values())
        self.tally.findings += [*sessions.findings, *failure_findings(self.tally.runtimes)]
        self.tally.without_any = chosen.without_any
        self.tally.findings += _not_tried(chosen.edges_without_any)
        if plain is not None and first is not None:
            checks += self._once_without(plain, *first)
        self.tally.checks = self.settled(checks)
        return self.tally

    def _reached(self) -> Iterator[Case]:
        """Yield the cases that show what those before have not, of them what is asked for.

        Where only some cases are tried, all others are shown to the module first: what is reached
        does not depend on what is looked at.
        """
        if self.setting.patterns:
            if not any(
                fnmatch.fnmatchcase(REACHED, p.split("/")[0]) for p in self.setting.patterns
            ):
                return
            self.explorer.forget()
            for case in self._cases(()):
                with suppress(Refusal):
                    self._module.watcher.run(case.arrays)
                    self.explorer.learn(case)
        made = self.explorer.cases()
        while True:
            try:
                further = next(made, None)
            except Exception as error:
                # What is looked for beyond the model's own cases costs none of their verdicts.
                tracebacks.write(error)
                self.tally.findings.append(
                    codes.OG406.finding(f"no further inputs were looked for: {first_line(error)}")
                )
                return
            if further is None:
                if (unread := self.explorer.unread) is not None:
                    self.tally.findings.append(codes.OG406.finding(unread))
                return
            if selected(further.id, self.setting.patterns):
                yield further

    def ordinary(self) -> Iterator[Case]:
        """Yield the cases that suites have drawn: at no edge, and none that was looked for."""
        return (case for case in self._cases(self.setting.patterns) if not case.is_edge)

    def tried(self) -> Iterator[Case]:
        """Yield the cases that were tried once more, those at later steps among them."""
        for case in itertools.chain(
            self._cases(self.setting.patterns), list(self.explorer.made.values())
        ):
            yield case
            if self.setting.spec.steps is not None and case.id in self._walked:
                yield from (later for later, _ in self.further(case, self.ask(case)))

    def ask(self, case: Case) -> Asked[CaseReference]:
        """Return what PyTorch says of a case."""
        return self._module.ask(case)

    def further(
        self, case: Case, asked: Asked[CaseReference]
    ) -> Iterator[tuple[Case, Asked[CaseReference]]]:
        """Yield what PyTorch says of the later steps of a case that was stepped, asked anew.

        Each can be asked about until the next one is.
        """
        if asked.reference is None or case.id not in self._walked:
            return
        way = self._way(case, asked.reference)
        while asked.reference is not None and way.advance(asked.reference.outputs.arrays):
            case = replace(case, arrays=way.arrays, sizes=way.sizes)
            asked = way.ask(case)
            yield case, asked

    def recheck(
        self, case: Case, asked: Asked[CaseReference], sessions: Sessions
    ) -> tuple[Check, ...]:
        """Judge what sessions of another file say of a case, by what PyTorch has said of it.

        That this file's outputs are wrong settles nothing of another's.
        """
        self._rules.resolves = False
        refused, self.tally.refused = self.tally.refused, Counter()
        try:
            return tuple(self._case(replace(case, expected={}), asked, sessions))
        finally:
            self._rules.resolves, self.tally.refused = True, refused

    def try_again(self, case: Case) -> tuple[Check, ...]:
        """Return the checks of a case of advice on the first runtime that runs."""
        with self._sessions(self._first_that_runs(), few=True) as sessions:
            return tuple(self._case(case, self._module.ask(case), sessions))

    def again(self, check: Check) -> tuple[Case, int, RuntimeSpec] | None:
        """Return the case, the output's index and the runtime of a check that this made.

        The case has PyTorch's inputs of the step that the check's numbers are of. ``None``
        where it cannot be told any more, as for values that a suite draws anew.
        """
        plain = without_optimisations(self.setting.spec.runtimes)
        runtimes = (*self.setting.spec.runtimes, *([plain] if plain is not None else ()))
        runtime = next((spec for spec in runtimes if spec.label == check.runtime), None)
        made = self.explorer.made.get(check.case)
        known = self._cases((glob.escape(check.case),)) if made is None else (made,)
        for case in known:
            if case.id == check.case and runtime is not None:
                if check.steps is not None:
                    arrays = inputs_at(check.steps.at, self.setting.spec, self.setting.eager, case)
                    case = replace(case, arrays=arrays)
                if "pytorch" in check.refused:  # and has no outputs to join
                    return case, 0, runtime
                names = self.setting.eager.run(case.arrays).names
                index = names.index(check.output) if check.output in names else 0
                if (
                    order_of(names, self.setting.graph_outputs, self.setting.spec)[0][index]
                    == index
                ):
                    return case, index, runtime
        return None

    def advice_as_data(
        self, late: Callable[[], bool], begin: Callable[[str], None]
    ) -> dict[str, Any]:
        """Try what many correct models promise nothing about; nothing here fails a model.

        ``begin`` is told which case is begun, and none is once it is ``late``. Returns
        ``{"checks": [...], "findings": [...]}`` as JSON data, whatever other cases have come to.
        """
        self.tally.refused.clear()
        seed_everything(self.setting.spec.seed)
        checks: list[Check] = []
        left_out = []
        with self._sessions(self._first_that_runs(), few=True) as sessions:
            for case in self._cases(self.setting.patterns, advice=True):
                if late():
                    left_out.append(case.id)
                else:
                    begin(case.id)
                    checks += self._case(case, self._module.ask(case), sessions)
        findings = list(advice(checks))
        if left_out:
            findings.append(
                codes.OG406.finding(
                    f"{len(left_out)} advisory cases were not tried, {left_out[0]} the first: all of "
                    "them have a fifth of the time that the model itself takes"
                )
            )
        return {
            "checks": [to_message(check) for check in checks],
            "findings": [to_message(finding) for finding in findings],
        }

    def _cases(self, patterns: tuple[str, ...], *, advice: bool = False) -> Cases:
        setting = self.setting
        return cases(
            setting.spec,
            setting.example,
            setting.workspace,
            patterns,
            advice=advice,
            focus=self._focus,
        )

    @functools.cached_property
    def _focus(self) -> Sizes:
        return focus_of(self.setting.eager, self.setting.spec, self.setting.example)

    def _sessions(self, runtimes: Sequence[RuntimeSpec], *, few: bool = False) -> Sessions:
        setting, clock = self.setting, self.tally.clock
        return Sessions(
            setting.path, runtimes, setting.threads, clock, loading=setting.loading, few=few
        )

    def _first_that_runs(self) -> tuple[RuntimeSpec, ...]:
        failed = {each.runtime for each in self.tally.runtimes if each.error is not None}
        return tuple(r for r in self.setting.spec.runtimes if r.label not in failed)[:1]

    def _once_without(
        self, plain: RuntimeSpec, case: Case, asked: Asked[CaseReference] | None
    ) -> list[Check]:
        """Run one case with the optimisations off: some faults show at one level only."""
        asked = asked or self._module.ask(case)
        try:
            with self._sessions((plain,), few=True) as sessions:
                return list(self._case(replace(case, expected={}), asked, sessions))
        except GateError as error:
            self.tally.findings.append(
                codes.OG304.finding(f"not run with optimisations off: {error.message}")
            )
            return []

    def _case(self, case: Case, asked: Asked[CaseReference], sessions: Sessions) -> Iterator[Check]:
        if asked.reference is not None and case.expected:
            yield from self._stored(case, asked, asked.reference)
        if (
            asked.reference is not None
            and self.setting.spec.steps is not None
            and is_stepped(case, self._walked)
        ):
            way = self._way(case, asked.reference)
            measure = not self._walked
            self._walked.add(case.id)
            inputs = self.setting.graph_inputs
            yield from stepped(self, case, asked, sessions, inputs, way, measure=measure)
            return
        for label in sessions:
            answered = sessions.ask(
                label, case.arrays, self.setting.graph_inputs, self.setting.half
            )
            yield from self.one(case, label, asked, answered)

    def _answers(
        self, sessions: Sessions, arrays: Mapping[str, Array], names: Sequence[str]
    ) -> Sequence[Array] | None:
        """Return what the first runtime says of inputs, as the outputs that PyTorch ``names``."""
        graph_outputs, spec = self.setting.graph_outputs, self.setting.spec
        inputs, half = self.setting.graph_inputs, self.setting.half
        made, _ = sessions.ask(next(iter(sessions)), arrays, inputs, half)
        if made is None or len(made) != len(names):
            return made
        return [made[place] for place in order_of(tuple(names), graph_outputs, spec)[0]]

    def _way(self, case: Case, reference: CaseReference) -> Trajectory:
        feedback = feedback_of(self.setting.spec, reference.outputs.names, case.steps)
        return Trajectory(feedback, case, self._module.ask)

    def _stored(
        self, case: Case, asked: Asked[CaseReference], reference: CaseReference
    ) -> Iterator[Check]:
        """Compare the outputs that a file of inputs holds with what PyTorch says now."""
        names = reference.outputs.names
        for key, array in case.expected.items():
            if key in names:
                index = names.index(key)
            elif key.isdigit() and int(key) < len(names):
                index = int(key)
            else:
                raise codes.OG108.error(
                    f"{case.id}: the stored output_{key} is none of the model's outputs: "
                    f"{', '.join(names)}"
                )
            yield self._judge(case, STORED, asked, reference, index, array)


def _not_tried(edges: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the kinds of edges that a suite of the manifest's asks for and no input has."""
    by_suite: dict[str, list[str]] = {}
    for suite, edge in edges:
        by_suite.setdefault(suite, []).append(edge)
    for suite, kinds in by_suite.items():
        yield codes.OG416.finding(
            f"no input has what the suite {suite} asks for with {', '.join(kinds)}: no case of "
            f"{'it' if len(kinds) == 1 else 'them'} was made"
        )
