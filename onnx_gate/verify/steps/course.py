"""One case, step by step: who goes on with what, and what each output's steps come to.

PyTorch's outputs go back to PyTorch and the candidate's to the candidate. Each step is judged as a
single call is, but for what PyTorch's own error is after as many steps (``trajectory``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.numerics.compare import compare
from onnx_gate.numerics.scaled import rms, scale_error
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.verify.compared import Answers, Asked, Comparer, Setting
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.judge.where import Selection
from onnx_gate.verify.pairing import order_of
from onnx_gate.verify.reference.answers import CaseAnswers
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.steps.feedback import Arrays, Feedback, chosen, feedback_of
from onnx_gate.verify.steps.fold import Step, fold, has_diverged

# So many of the default cases are stepped.
UNNAMED = 4


_R = TypeVar("_R", bound=CaseAnswers)


class Way(Protocol[_R]):
    """PyTorch's way through the steps of one case, and the inputs that all others share with it.

    ``number`` is that of a step, and counts from 1.
    """

    feedback: Feedback
    number: int

    @property
    def arrays(self) -> Arrays:
        """PyTorch's inputs of this step."""
        ...

    @property
    def sizes(self) -> Sizes:
        """The sizes in it."""
        ...

    def advance(self, outputs: tuple[Array, ...]) -> bool:
        """Go on to the next step with what PyTorch answered, and return whether there is one.

        Raises ``GateError`` (OG412).
        """
        ...

    def ask(self, case: Case) -> Asked[_R]:
        """Return what PyTorch says of this step, which ``case`` has the inputs of."""
        ...


def stepped(
    comparer: Comparer[_R],
    case: Case,
    asked: Asked[_R],
    sessions: Sessions,
    graph_inputs: Mapping[str, str],
    way: Way[_R],
    *,
    measure: bool,
) -> Iterator[Check]:
    """Yield the checks of a case whose outputs come back, the steps of each output in one.

    With ``measure`` PyTorch's own rounding is found out at every step, whether a verdict needs it or
    not.
    """
    setting, findings = comparer.setting, comparer.tally.findings
    walk = _StepWalk(way, sessions, measure=measure)
    reference = asked.reference
    while reference is not None:
        for label, feeds in walk.feeds.items():
            answered = sessions.ask(label, feeds, graph_inputs, setting.half)
            checks = tuple(comparer.one(case, label, asked, answered, walk.settled(label)))
            answers = _in_order(setting, reference, answered)
            walk.take(label, checks, reference, answers, asked.selected)
        if not walk.advance(reference):
            break
        case = replace(case, arrays=way.arrays, sizes=way.sizes)
        asked = way.ask(case)
        reference = asked.reference
        if reference is None:
            findings += _refused_at(way, case.id, asked.refusal, setting.spec.against, findings)
    yield from walk.checks()


def _in_order(setting: Setting, reference: CaseAnswers, answered: Answers) -> list[Array] | None:
    """Return a runtime's answers in PyTorch's order, ``None`` where that cannot be."""
    names, answers = reference.outputs.names, answered[0]
    if answers is None or len(names) != len(answers):
        return None
    return [answers[n] for n in order_of(names, setting.graph_outputs, setting.spec)[0]]


@dataclass
class _Candidate:
    """A runtime on its way: what it is fed next, and each output's steps so far."""

    feeds: Arrays
    steps: dict[str, list[Step]] = field(default_factory=dict)


class _StepWalk:
    """The steps of one case, of PyTorch (``way``) and of every runtime beside it."""

    def __init__(self, way: Way[_R], labels: Iterable[str], *, measure: bool) -> None:
        self._way, self._measure, self._sizes = way, measure, dict(way.sizes)
        self._candidates = {label: _Candidate(way.arrays) for label in labels}
        self._answers: dict[str, Sequence[Array]] = {}

    @property
    def feeds(self) -> Mapping[str, Arrays]:
        """The inputs of this step for every runtime that has come so far."""
        return {
            label: candidate.feeds
            for label, candidate in self._candidates.items()
            if self._way.number == 1 or label in self._answers
        }

    def settled(self, label: str) -> frozenset[str]:
        """Return the outputs of a runtime that have diverged: these are measured, and judged no more."""
        return frozenset(
            name for name, steps in self._candidates[label].steps.items() if has_diverged(steps)
        )

    def take(
        self,
        label: str,
        checks: Sequence[Check],
        reference: CaseAnswers,
        answers: Sequence[Array] | None,
        selected: Sequence[Selection | None],
    ) -> None:
        """Take in a step of a runtime: its ``checks``, and its ``answers`` in PyTorch's order.

        ``selected`` are the positions that are judged, of each output. A runtime goes no further where
        it has no answers, or some of another form.
        """
        self._answers.pop(label, None)
        rows: dict[str, Step] = {c.output: Step(self._way.number, c) for c in checks}
        outputs = reference.outputs
        if answers is not None and all(map(_alike, answers, outputs.arrays)):
            self._answers[label] = answers
            rows |= {
                name: self._measured(
                    rows.get(name), index, reference, answers[index], selected[index]
                )
                for index, name in enumerate(outputs.names)
            }
        for name, step in rows.items():
            self._candidates[label].steps.setdefault(name, []).append(step)

    def advance(self, reference: CaseAnswers) -> bool:
        """Go on to the next step, and return whether there is one; raises ``GateError`` (OG412)."""
        if not self._answers or not self._way.advance(reference.outputs.arrays):
            return False
        for label, answers in self._answers.items():
            self._candidates[label].feeds = self._way.feedback.mine(self._way.arrays, answers)
        return True

    def checks(self) -> Iterator[Check]:
        """Yield one check for each output and runtime."""
        for candidate in self._candidates.values():
            for steps in candidate.steps.values():
                check = fold(self._way.feedback.count, steps)
                yield check.model_copy(update={"sizes": self._sizes})

    def _measured(
        self,
        step: Step | None,
        index: int,
        reference: CaseAnswers,
        actual: Array,
        selected: Selection | None,
    ) -> Step:
        """Add to a step what is drawn: both errors, and whether the same tokens were chosen."""
        check = step.check if step is not None else None
        expected = reference.outputs.arrays[index]
        judged = selected.of if selected is not None else np.asarray
        metrics = check.metrics if check is not None else None
        rounding = metrics.rounding if metrics is not None else None
        if rounding is not None and check is not None and check.worst is not None:
            rounding /= abs(check.worst.expected) + rms(judged(expected)) or 1.0
        if self._measure and rounding is None and check is not None and "auto" in check.tolerance:
            wide = reference.output(index).float64()
            rounding = None if wide is None else scale_error(judged(expected), judged(wide))
        same = of = 0
        for link in self._way.feedback.chosen:
            rank = len(self._way.feedback.inputs[link.input].shape)
            if link.index == index:
                pair = chosen(expected, rank), chosen(actual, rank)
                if pair[0] is not None and pair[1] is not None:
                    same, of = int(np.sum(pair[0] == pair[1])), pair[0].size
        return Step(
            self._way.number,
            check,
            scale_error(judged(actual), judged(expected)),
            rounding,
            _max_abs(judged(actual), judged(expected)),
            same,
            of,
        )


def _max_abs(actual: Array, expected: Array) -> float:
    comparison = compare(actual, expected)
    return math.inf if comparison.nonfinite else comparison.max_abs


def _alike(actual: Array, expected: Array) -> bool:
    return actual.shape == expected.shape and actual.dtype == expected.dtype


def is_stepped(case: Case, walked: Collection[str]) -> bool:
    """Return whether a case is the first step of many; ``walked`` are the ids of those that were.

    Edges show what they show in one call. Of the cases that nobody named a few are enough: the steps
    go through the sizes of a cache by themselves.
    """
    if case.is_edge or case.advice:
        return False
    return case.named or case.id in walked or len(walked) < UNNAMED


def check_steps(spec: ModelSpec, arrays: Arrays, outputs: Outputs, sizes: Sizes) -> None:
    """Raise ``GateError`` (OG412) where the model's ``steps`` do not fit what it returns."""
    if spec.steps is not None:
        feedback_of(spec, outputs.names).after(arrays, outputs.arrays, sizes)


def _refused_at(
    way: Way[_R],
    case: str,
    refusal: Refusal | None,
    against: str,
    known: Iterable[Finding],
) -> list[Finding]:
    """Return a word on the step that the side refuses that is right, once for a model."""
    if any(codes.OG414.among(known)):
        return []
    number, count = way.number, way.feedback.count
    return [
        codes.OG414.finding(
            f"{against} refuses step {number} of {count} in {case}: {refusal}. What came before it was "
            "compared",
            data={"step": number},
        )
    ]
