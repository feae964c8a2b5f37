"""What PyTorch and a runtime say of the same case, held against each other: no torch, no module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.model import Check
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array, Outputs, Refusal, first_line
from onnx_gate.text import output_called
from onnx_gate.verify.check_of import bare_check, judged_check, one_sided
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import Noise
from onnx_gate.verify.judge.where import Selection, judge_selected
from onnx_gate.verify.leaning import Leaning
from onnx_gate.verify.pairing import RuleBook, order_of
from onnx_gate.verify.proposal import Measured, top1_of
from onnx_gate.verify.reference.answers import CaseAnswers
from onnx_gate.verify.stopwatch import Clock

STORED = "stored"
# Checks that diverge of which all that PyTorch said is kept for the diagnosis.
_KEPT = 8
# So many checks of an output that counted and diverged with all runs made leave no doubt about it.
_SETTLED = 4

# What a runtime answers, or its refusal.
Answers = tuple[list[Array] | None, Refusal | None]
_R = TypeVar("_R", bound=CaseAnswers)


@dataclass(frozen=True)
class Asked(Generic[_R]):
    """What PyTorch says of a case, or why it refuses.

    ``slow``: it answers with the fast path of attention off only. ``selected`` are the positions
    of each output that are judged.
    """

    reference: _R | None
    refusal: Refusal | None = None
    slow: bool = False
    selected: tuple[Selection | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of PyTorch's outputs."""
        return sum(a.nbytes for a in self.reference.outputs.arrays) if self.reference else 0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What answers are compared by. ``reduced``: the file computes in fewer bits."""

    spec: ModelSpec
    graph_outputs: tuple[str, ...]
    workspace: Path
    threads: int
    reduced: Reduced | None = None

    @property
    def half(self) -> str | None:
        """The dtype of half precision that the file computes in, ``None`` where it does not."""
        return self.reduced.dtype if self.reduced is not None and self.reduced.is_half else None

    @property
    def by_steps(self) -> bool:
        """Whether some checks are decided by the others: the file computes with integers."""
        return self.reduced is not None and not self.reduced.is_half


@dataclass(kw_only=True)
class Tally(Generic[_R]):
    """What comparing has come to so far.

    ``experience`` is what each output was over the cases, ``measured`` what fewer bits cost in the
    checks that count, ``kept`` what PyTorch said of checks that diverged, ``refused`` how many did of a
    runtime and an output. ``unchosen`` are the cases
    that nobody chose, and whether they go beyond the values of those that somebody did, which are
    ``largest`` for each input.
    """

    findings: list[Finding] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    experience: dict[str, Experience] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    kept: dict[tuple[str, str, str], tuple[Noise | None, _R]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    leaning: Leaning = field(default_factory=Leaning)
    unchosen: dict[str, bool] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)


class Comparer(Generic[_R]):
    """Judges what runtimes answer, by a setting, into a tally."""

    def __init__(self, setting: Setting, tally: Tally[_R] | None = None) -> None:
        self.setting = setting
        self.tally = tally if tally is not None else Tally()
        self._rules = RuleBook(setting.spec, setting.workspace, setting.threads)

    def settled(self, checks: Sequence[Check]) -> tuple[Check, ...]:
        """Return all checks of all cases as they are when each has been seen; the next begin anew."""
        leaning, self.tally.leaning = self.tally.leaning, Leaning()
        judged = leaning.refused(checks, self.setting.spec.against)
        return self._within_steps(judged) if self.setting.by_steps else judged

    def _within_steps(self, checks: Sequence[Check]) -> tuple[Check, ...]:
        """Let cases that nobody chose be advice where a file with integers is off by its own steps.

        Its errors are as large as the steps of its scales, whatever the output: where that is small, as
        on constant inputs, they are a large part of it. So K times the largest error on ordinary
        inputs is granted there; and beyond the values of those, where scales saturate, whatever is
        finite.
        """
        granted = self._granted([check for check in checks if check.verdict == "pass"], checks)
        judged = [
            check.model_copy(update={"advice": True})
            if check.verdict == "diverged" and _key(check) in granted
            else check
            for check in checks
        ]
        # Where every ordinary check passes, as with the tolerance that is proposed, this is granted.
        then = self._granted(checks, checks)
        self.tally.measured = [m for m in self.tally.measured if _key(m) not in then]
        self.tally.findings += advice([check for check in judged if check.advice])
        return tuple(judged)

    def _granted(self, right: Iterable[Check], checks: Iterable[Check]) -> set[tuple[str, ...]]:
        """Return which of ``checks``, of cases that nobody chose, decide nothing beside those ``right``."""
        beyond = self.tally.unchosen
        usual: dict[tuple[str, str], float] = {}
        for check in right:
            if check.metrics is not None and check.case not in beyond:
                key = check.runtime, check.output
                usual[key] = max(usual.get(key, 0.0), check.metrics.max_abs)
        return {
            _key(check)
            for check in checks
            if check.case in beyond
            and check.metrics is not None
            and not check.metrics.nonfinite
            and (
                beyond[check.case]
                or check.metrics.max_abs
                <= DEFAULT_AUTO * usual.get((check.runtime, check.output), 0.0)
            )
        }

    def one(
        self,
        case: Case,
        label: str,
        asked: Asked[_R],
        answered: Answers,
        settled: Collection[str] = (),
    ) -> Iterator[Check]:
        """Yield the checks of what a runtime answers, or of its refusal."""
        answers, refused = answered
        if answers is None and refused is None:
            return  # it has failed, which is said once and for all
        if asked.reference is None or answers is None:
            yield one_sided(case, label, self.setting.spec.against, asked.refusal, refused)
        else:
            yield from self._compare(case, label, asked, asked.reference, answers, settled)

    def _compare(
        self,
        case: Case,
        label: str,
        asked: Asked[_R],
        reference: _R,
        answers: Sequence[Array],
        settled: Collection[str],
    ) -> Iterator[Check]:
        """Judge every output but the ``settled`` ones."""
        names = reference.outputs.names
        if len(answers) != len(names):
            listed = ", ".join(names)
            reason = f"{len(answers)} outputs where {self.setting.spec.against} has {len(names)} ({listed})"
            yield bare_check(case, label, "*", "diverged", reason, form="number")
            return
        order, finding = order_of(names, self.setting.graph_outputs, self.setting.spec)
        if finding is not None:
            self.tally.findings.append(finding)
        for index, position in enumerate(order):
            if names[index] not in settled:
                yield self._judge(case, label, asked, reference, index, answers[position])

    def _judge(
        self, case: Case, label: str, asked: Asked[_R], reference: _R, index: int, candidate: Array
    ) -> Check:
        name, expected = reference.outputs.names[index], reference.outputs.arrays[index]
        if candidate.dtype.name == self.setting.half and expected.dtype in (np.float32, np.float64):
            candidate = candidate.astype(expected.dtype)
        rules = self._rules.of(name, candidate.dtype, label)
        if self.tally.refused[label, name] >= _SETTLED:
            # Where something is waived, a verdict may hang on each of the others.
            looked_for = case.kind == REACHED and not self.setting.spec.waivers
            rules = replace(rules, refused=True, settled=looked_for)
        outside, resolution = 0, None
        selected, answers = asked.selected[index], reference.output(index)
        try:
            with self.tally.clock.of("compare"):
                if selected is None:
                    judged = judge(candidate, expected, rules, answers)
                else:
                    judged = judge_selected(candidate, expected, rules, answers, selected)
                    outside, expected = selected.outside(expected), selected.of(expected)
                if judged.holds and not case.advice and not judged.open:
                    # What was looked for is far from all else: to refuse that takes no sharp judge.
                    if case.kind != REACHED:
                        self.tally.experience[name].try_judge(case.id, expected, rules, judged)
                    if rules.resolves and not case.edge:
                        resolution = self.tally.experience[name].resolution(expected, rules, judged)
        except (ValueError, TypeError) as error:
            raise codes.OG405.error(
                f"{case.id}: the tolerance of {name} cannot be applied: {first_line(error)}"
            ) from error
        if not case.advice and label != STORED and not reference.stepped:
            # The steps of a case are no cases: each carries the differences of those before it.
            self.tally.leaning.take(label, name, case.id, judged.lean)
        if not judged.holds and not case.advice:
            self.tally.refused[label, name] += 1
            if len(self.tally.kept) < _KEPT:
                self.tally.kept.setdefault((label, case.id, name), (judged.noise, reference))
        if judged.holds and not case.advice and selected is None and name in self.tally.experience:
            self.tally.experience[name].left_open.learn(expected, judged.opened)
        if "rounding" in judged.causes and name in self.tally.experience:
            self.tally.experience[name].rewritten |= reference.rewritten
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
            self.tally.unchosen[case.id] = any(
                size > self.tally.largest.get(each, 0.0) for each, size in _largest(case).items()
            )
        elif self.setting.reduced is not None:
            for each, size in _largest(case).items():
                self.tally.largest[each] = max(size, self.tally.largest.get(each, 0.0))
        if self.setting.reduced is not None and check.metrics is not None and label != STORED:
            actual = candidate if selected is None else selected.of(candidate)
            self._measure(case, check, actual, expected)
        return check.model_copy(update={"outside": outside, "resolution": resolution})

    def _measure(self, case: Case, check: Check, candidate: Array, expected: Array) -> None:
        metrics = check.metrics
        if check.advice or metrics is None or metrics.cosine is None or metrics.snr_db is None:
            return
        agreeing, rows = top1_of(check.output, candidate, expected)
        self.tally.measured.append(
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


def learn(
    experience: dict[str, Experience], outputs: Outputs, selected: Sequence[Selection | None]
) -> None:
    """Take in what PyTorch answered in a case that counts."""
    for name, array, positions in zip(outputs.names, outputs.arrays, selected, strict=True):
        if positions is not None and is_floating(array.dtype):
            array = positions.of(array)
        experience.setdefault(name, Experience()).learn(array)


def _key(check: Check | Measured) -> tuple[str, ...]:
    return check.runtime, check.case, check.output


def _largest(case: Case) -> dict[str, float]:
    """Return the largest magnitude of each floating-point input."""
    floats = {name: array for name, array in case.arrays.items() if is_floating(array.dtype)}
    return {name: float(np.abs(each).max(initial=0.0)) for name, each in floats.items()}


def advice(checks: Sequence[Check]) -> Iterator[Finding]:
    """Yield what diverged on inputs that nobody promised, once for each kind of them."""
    by_edge: dict[str, list[Check]] = {}
    for check in checks:
        if check.verdict == "diverged":
            by_edge.setdefault(check.edge, []).append(check)
    for first, *others in by_edge.values():
        more = f" (and {len(others)} more like it)" if others else ""
        # A refusal is of no output.
        at = first.case if first.refused else f"{first.case}, {output_called(first.output)}"
        yield codes.OG403.finding(f"{at}: {first.reason}{more}")
