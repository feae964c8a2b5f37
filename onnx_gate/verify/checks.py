"""Every case on every runtime: both sides run, each output is judged."""

from __future__ import annotations

import fnmatch
import glob
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check, RuntimeResult
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.asked import Asked, Module
from onnx_gate.verify.check_of import bare_check, judged_check, one_sided
from onnx_gate.verify.experience import KEPT_BYTES, Experience
from onnx_gate.verify.inputs.cases import Case, Cases, cases, selected
from onnx_gate.verify.inspect.reduced import Reduced
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import Noise
from onnx_gate.verify.judge.where import judge_selected
from onnx_gate.verify.leaning import Leaning
from onnx_gate.verify.pairing import RuleBook, order_of
from onnx_gate.verify.proposal import Measured, top1_of
from onnx_gate.verify.reach.explore import Explorer
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, failure_findings, without_optimisations
from onnx_gate.verify.steps.feedback import feedback_of
from onnx_gate.verify.steps.trajectory import StepReference
from onnx_gate.verify.steps.walk import Walk, inputs_at, is_stepped, refused_at
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.workers import tracebacks

STORED = "stored"
# Checks that diverge of which all that PyTorch said is kept for the diagnosis.
_KEPT = 8

# What a runtime answers, or its refusal.
_Answers = tuple[list[Array] | None, Refusal | None]


@dataclass
class Checker:
    """Runs one exported model against its module; ``findings`` grows as it does.

    ``experience`` is what each output was over the cases, ``without_any`` the suites that have
    made no case, ``runtimes`` what became of each. ``reduced``: the file computes in fewer bits, and
    ``measured`` is what that costs in the checks that count. ``answered`` keeps every case with what
    PyTorch says of it, where there is a list for them.
    """

    spec: ModelSpec
    eager: Eager
    path: Path
    graph_inputs: Mapping[str, str]
    graph_outputs: tuple[str, ...]
    example: Mapping[str, int]
    workspace: Path
    patterns: tuple[str, ...]
    threads: int
    reduced: Reduced | None = None
    measured: list[Measured] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    experience: dict[str, Experience] = field(default_factory=dict)
    without_any: tuple[str, ...] = ()
    runtimes: tuple[RuntimeResult, ...] = ()
    answered: list[tuple[Case, Asked]] | None = None
    numbers: Sequence[int] = ()
    kept: dict[tuple[str, str, str], tuple[Noise | None, CaseReference]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self._module = Module(self.spec, self.eager, self.clock, self.experience)
        self._rules = RuleBook(self.spec, self.workspace, self.threads)
        self._walked: set[str] = set()
        self.explorer = Explorer(self.spec, self._module.watcher, self.numbers)
        self._leaning = Leaning()
        # Of the cases that nobody chose, whether they go beyond the values of those that somebody did.
        self._unchosen: dict[str, bool] = {}
        self._largest: dict[str, float] = {}

    @property
    def half(self) -> str | None:
        """The dtype of half precision that the file computes in, ``None`` where it does not."""
        return self.reduced.dtype if self.reduced is not None and self.reduced.is_half else None

    def run(self) -> tuple[Check, ...]:
        """Try every case of the model's suites; raises ``GateError`` as suites and runtimes do."""
        chosen = self._cases(self.patterns)
        plain = without_optimisations(self.spec.runtimes)
        with self._sessions(self.spec.runtimes) as sessions:
            checks: list[Check] = []
            first: tuple[Case, Asked | None] | None = None
            for case in itertools.chain(chosen, self._reached()):
                asked = self._module.ask(case)
                if asked.reference is not None and case.kind != REACHED:
                    self.explorer.learn(case)
                if self.answered is not None:
                    self.answered.append((case, asked))
                if first is None:
                    first = case, asked if asked.nbytes <= KEPT_BYTES else None
                checks += self._case(case, asked, sessions)
        self.runtimes = sessions.results()
        self.findings += [*sessions.findings, *failure_findings(self.runtimes)]
        self.without_any = chosen.without_any
        self.findings += _not_tried(chosen.edges_without_any)
        if plain is not None and first is not None:
            checks += self._once_without(plain, *first)
        judged = self._leaning.refused(checks, self.spec.against)
        return self._within_steps(judged) if self.reduced and not self.reduced.is_half else judged

    def _within_steps(self, checks: Sequence[Check]) -> tuple[Check, ...]:
        """Let cases that nobody chose be advice where a file with integers is off by its own steps.

        Its errors are as large as the steps of its scales, whatever the output: where that is small, as
        on constant inputs, they are a large part of it. So K times the largest error on ordinary
        inputs is granted there; and beyond the values of those, where scales saturate, whatever is
        finite.
        """
        usual: dict[tuple[str, str], float] = {}
        for check in checks:
            chosen = check.case not in self._unchosen
            if check.metrics is not None and chosen and check.verdict == "pass":
                key = check.runtime, check.output
                usual[key] = max(usual.get(key, 0.0), check.metrics.max_abs)
        judged = [
            check.model_copy(update={"advice": True})
            if check.verdict == "diverged"
            and check.case in self._unchosen
            and check.metrics is not None
            and not check.metrics.nonfinite
            and (
                self._unchosen[check.case]
                or check.metrics.max_abs
                <= DEFAULT_AUTO * usual.get((check.runtime, check.output), 0.0)
            )
            else check
            for check in checks
        ]
        self.findings += _advice([check for check in judged if check.advice])
        return tuple(judged)

    def _reached(self) -> Iterator[Case]:
        """Yield the cases that show what those before have not, of them what is asked for.

        Where only some cases are tried, all others are shown to the module first: what is reached
        does not depend on what is looked at.
        """
        if self.patterns:
            if not any(fnmatch.fnmatchcase(REACHED, p.split("/")[0]) for p in self.patterns):
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
                self.findings.append(
                    codes.OG406.finding(f"no further inputs were looked for: {first_line(error)}")
                )
                return
            if further is None:
                return
            if selected(further.id, self.patterns):
                yield further

    def recheck(self, case: Case, asked: Asked, sessions: Sessions) -> tuple[Check, ...]:
        """Judge what sessions of another file say of a case, by what PyTorch has said of it."""
        self._rules.resolves = False
        try:
            return tuple(self._case(replace(case, expected={}), asked, sessions))
        finally:
            self._rules.resolves = True

    def try_again(self, case: Case) -> tuple[Check, ...]:
        """Return the checks of a case of advice on the first runtime that runs."""
        with self._sessions(self._first_that_runs()) as sessions:
            return tuple(self._case(case, self._module.ask(case), sessions))

    def again(self, check: Check) -> tuple[Case, int, RuntimeSpec] | None:
        """Return the case, the output's index and the runtime of a check that this made.

        The case has PyTorch's inputs of the step that the check's numbers are of. ``None``
        where it cannot be told any more, as for values that a suite draws anew.
        """
        plain = without_optimisations(self.spec.runtimes)
        runtimes = (*self.spec.runtimes, *([plain] if plain is not None else ()))
        runtime = next((spec for spec in runtimes if spec.label == check.runtime), None)
        made = self.explorer.made.get(check.case)
        known = self._cases((glob.escape(check.case),)) if made is None else (made,)
        for case in known:
            if case.id == check.case and runtime is not None:
                if check.steps is not None:
                    arrays = inputs_at(check.steps.at, self.spec, self.eager, case)
                    case = replace(case, arrays=arrays)
                names = self.eager.run(case.arrays).names
                index = names.index(check.output) if check.output in names else 0
                if order_of(names, self.graph_outputs, self.spec)[0][index] == index:
                    return case, index, runtime
        return None

    def advice_as_data(self, deadline: Deadline) -> dict[str, Any]:
        """Try what many correct models promise nothing about; nothing here fails a model.

        No case is begun once the time is over. Returns ``{"checks": [...], "findings": [...]}`` as
        JSON data.
        """
        self._rules.threads = self.threads
        checks: list[Check] = []
        left_out = []
        with self._sessions(self._first_that_runs()) as sessions:
            for case in self._cases(self.patterns, advice=True):
                if deadline.passed():
                    left_out.append(case.id)
                else:
                    checks += self._case(case, self._module.ask(case), sessions)
        findings = list(_advice(checks))
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
        return cases(self.spec, self.example, self.workspace, patterns, advice=advice)

    def _sessions(self, runtimes: Sequence[RuntimeSpec]) -> Sessions:
        return Sessions(self.path, runtimes, self.threads, self.clock)

    def _first_that_runs(self) -> tuple[RuntimeSpec, ...]:
        failed = {each.runtime for each in self.runtimes if each.error is not None}
        return tuple(r for r in self.spec.runtimes if r.label not in failed)[:1]

    def _once_without(self, plain: RuntimeSpec, case: Case, asked: Asked | None) -> list[Check]:
        """Run one case with the optimisations off: some faults show at one level only."""
        asked = asked or self._module.ask(case)
        try:
            with self._sessions((plain,)) as sessions:
                return list(self._case(replace(case, expected={}), asked, sessions))
        except GateError as error:
            self.findings.append(
                codes.OG304.finding(f"not run with optimisations off: {error.message}")
            )
            return []

    def _case(self, case: Case, asked: Asked, sessions: Sessions) -> Iterator[Check]:
        if asked.reference is not None and case.expected:
            yield from self._stored(case, asked, asked.reference)
        if (
            asked.reference is not None
            and self.spec.steps is not None
            and is_stepped(case, self._walked)
        ):
            yield from self._stepped(case, asked, asked.reference, sessions)
            return
        for label in sessions:
            answered = sessions.ask(label, case.arrays, self.graph_inputs, self.half)
            yield from self._one(case, label, asked, answered)

    def _one(
        self,
        case: Case,
        label: str,
        asked: Asked,
        answered: _Answers,
        settled: Collection[str] = (),
    ) -> Iterator[Check]:
        answers, refused = answered
        if answers is None and refused is None:
            return  # it has failed, which is said once and for all
        if asked.reference is None or answers is None:
            yield one_sided(case, label, self.spec.against, asked.refusal, refused)
        else:
            yield from self._compare(case, label, asked, asked.reference, answers, settled)

    def _stepped(
        self,
        case: Case,
        asked: Asked,
        reference: CaseReference,
        sessions: Sessions,
    ) -> Iterator[Check]:
        """Yield the checks of a case whose outputs come back, the steps of each output in one."""
        walk = Walk(
            feedback_of(self.spec, reference.outputs.names),
            case.arrays,
            case.sizes,
            sessions,
            measure=not self._walked,
        )
        self._walked.add(case.id)
        while True:
            for label, feeds in walk.feeds.items():
                answered = sessions.ask(label, feeds, self.graph_inputs, self.half)
                checks = tuple(self._one(case, label, asked, answered, walk.settled(label)))
                answers = self._in_order(reference, answered)
                walk.take(label, checks, reference, answers, asked.selected)
            if not walk.advance(reference):
                break
            case = replace(case, arrays=walk.trajectory.arrays, sizes=walk.trajectory.sizes)
            asked = self._module.ask(case, walk.trajectory)
            if asked.reference is None:
                self.findings += refused_at(
                    walk.trajectory, case.id, asked.refusal, self.spec.against, self.findings
                )
                break
            reference = asked.reference
        yield from walk.checks()

    def _in_order(self, reference: CaseReference, answered: _Answers) -> list[Array] | None:
        """Return a runtime's answers in PyTorch's order, ``None`` where that cannot be."""
        names, answers = reference.outputs.names, answered[0]
        if answers is None or len(names) != len(answers):
            return None
        return [answers[n] for n in order_of(names, self.graph_outputs, self.spec)[0]]

    def _compare(
        self,
        case: Case,
        label: str,
        asked: Asked,
        reference: CaseReference,
        answers: Sequence[Array],
        settled: Collection[str],
    ) -> Iterator[Check]:
        """Judge every output but the ``settled`` ones."""
        names = reference.outputs.names
        if len(answers) != len(names):
            listed = ", ".join(names)
            reason = f"{len(answers)} outputs where {self.spec.against} has {len(names)} ({listed})"
            yield bare_check(case, label, "*", "diverged", reason, form="number")
            return
        order, finding = order_of(names, self.graph_outputs, self.spec)
        if finding is not None:
            self.findings.append(finding)
        for index, position in enumerate(order):
            if names[index] not in settled:
                yield self._judge(case, label, asked, reference, index, answers[position])

    def _judge(
        self,
        case: Case,
        label: str,
        asked: Asked,
        reference: CaseReference,
        index: int,
        candidate: Array,
    ) -> Check:
        name, expected = reference.outputs.names[index], reference.outputs.arrays[index]
        if candidate.dtype.name == self.half and expected.dtype in (np.float32, np.float64):
            candidate = candidate.astype(expected.dtype)
        rules = self._rules.of(name, candidate.dtype, label)
        outside, resolution = 0, None
        selected, answers = asked.selected[index], reference.output(index)
        try:
            with self.clock.of("compare"):
                if selected is None:
                    judged = judge(candidate, expected, rules, answers)
                else:
                    judged = judge_selected(candidate, expected, rules, answers, selected)
                    outside, expected = selected.outside(expected), selected.of(expected)
                if judged.holds and not case.advice and not judged.open:
                    self.experience[name].try_judge(case.id, expected, rules, judged)
                    if rules.resolves and not case.edge:
                        resolution = self.experience[name].resolution(expected, rules, judged)
        except (ValueError, TypeError) as error:
            raise codes.OG405.error(
                f"{case.id}: the tolerance of {name} cannot be applied: {first_line(error)}",
            ) from error
        if not case.advice and label != STORED and not isinstance(reference, StepReference):
            # The steps of a case are no cases: each carries the differences of those before it.
            self._leaning.take(label, name, case.id, judged.lean)
        place = label, case.id, name
        if not judged.holds and not case.advice and len(self.kept) < _KEPT:
            self.kept.setdefault(place, (judged.noise, reference))
        if asked.slow:
            judged = replace(
                judged,
                compared=0,
                open=judged.compared + judged.open,
                causes=("attention's fast path", *judged.causes),
            )
        check = judged_check(case, label, name, judged, advice=case.advice)
        unchosen = (case.is_edge and not case.named) or case.kind == REACHED
        if unchosen:
            self._unchosen[case.id] = any(
                size > self._largest.get(each, 0.0) for each, size in _largest(case).items()
            )
        elif self.reduced is not None:
            for each, size in _largest(case).items():
                self._largest[each] = max(size, self._largest.get(each, 0.0))
        # What a file with integers costs is measured where its scales were taken from.
        measured = self.reduced is not None and (self.reduced.is_half or not unchosen)
        if measured and check.metrics is not None and label != STORED:
            actual = candidate if selected is None else selected.of(candidate)
            self._measure(case, check, actual, expected)
        return check.model_copy(update={"outside": outside, "resolution": resolution})

    def _measure(self, case: Case, check: Check, candidate: Array, expected: Array) -> None:
        metrics = check.metrics
        if check.advice or metrics is None or metrics.cosine is None or metrics.snr_db is None:
            return
        agreeing, rows = top1_of(check.output, candidate, expected)
        self.measured.append(
            Measured(
                runtime=check.runtime,
                case=case.id,
                output=check.output,
                sizes=case.sizes,
                drawn=case.kind == "random",
                cosine=metrics.cosine,
                snr_db=metrics.snr_db,
                agreeing=agreeing,
                rows=rows,
            )
        )

    def _stored(self, case: Case, asked: Asked, reference: CaseReference) -> Iterator[Check]:
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
                    f"{', '.join(names)}",
                )
            yield self._judge(case, STORED, asked, reference, index, array)


def _largest(case: Case) -> dict[str, float]:
    """Return the largest magnitude of each floating-point input."""
    floats = {name: array for name, array in case.arrays.items() if is_floating(array.dtype)}
    return {name: float(np.abs(each).max(initial=0.0)) for name, each in floats.items()}


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


def _advice(checks: Sequence[Check]) -> Iterator[Finding]:
    """Yield what diverged on inputs that nobody promised, once for each kind of them."""
    by_edge: dict[str, list[Check]] = {}
    for check in checks:
        if check.verdict == "diverged":
            by_edge.setdefault(check.edge, []).append(check)
    for first, *others in by_edge.values():
        more = f" (and {len(others)} more like it)" if others else ""
        yield codes.OG403.finding(f"{first.case}, output {first.output}: {first.reason}{more}")
