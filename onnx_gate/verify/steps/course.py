"""One case, step by step: who goes on with what, and what each output's steps come to.

PyTorch's outputs go back to PyTorch and the candidate's to the candidate. Each step is judged as a
single call is, but for what PyTorch's own error is after as many steps (``trajectory``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.verify.compared import Answers, Asked, Comparer, Setting
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.judge.where import Selection
from onnx_gate.verify.pairing import order_of
from onnx_gate.verify.reference.answers import CaseAnswers
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.steps.feedback import Arrays, Feedback, feedback_of
from onnx_gate.verify.steps.measured_steps import StepRows

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
            answers = in_order(setting, reference.outputs.names, answered)
            walk.take(label, checks, reference, answers, asked.selected)
        if not walk.advance(reference):
            break
        case = replace(case, arrays=way.arrays, sizes=way.sizes)
        asked = way.ask(case)
        reference = asked.reference
        if reference is None:
            known, spec = findings, setting.spec
            findings += refused_at(way.number, case.id, asked.refusal, spec, known)
    yield from walk.checks()


def in_order(setting: Setting, names: tuple[str, ...], answered: Answers) -> list[Array] | None:
    """Return a runtime's answers in PyTorch's order, by its names, ``None`` where that cannot be."""
    answers = answered[0]
    if answers is None or len(names) != len(answers):
        return None
    return [answers[n] for n in order_of(names, setting.graph_outputs, setting.spec)[0]]


@dataclass
class _Candidate:
    """A runtime on its way: what it is fed next, and each output's steps so far."""

    feeds: Arrays
    rows: StepRows


class _StepWalk:
    """The steps of one case, of PyTorch (``way``) and of every runtime beside it."""

    def __init__(self, way: Way[_R], labels: Iterable[str], *, measure: bool) -> None:
        self._way = way
        self._candidates = {
            label: _Candidate(way.arrays, StepRows(way.feedback, dict(way.sizes), measure))
            for label in labels
        }
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
        return self._candidates[label].rows.settled

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
        rows = self._candidates[label].rows
        if rows.take(self._way.number, checks, reference, answers, selected):
            assert answers is not None
            self._answers[label] = answers

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
            yield from candidate.rows.checks()


def is_stepped(case: Case, walked: Collection[str]) -> bool:
    """Return whether a case is the first step of many; ``walked`` are the ids of those that were.

    Edges show what they show in one call, but for what begins more calls than the manifest's. Of the
    cases that nobody named a few are enough: the steps go through the sizes of a cache by themselves.
    """
    if case.is_edge or case.advice:
        return case.steps > 0
    return case.named or case.id in walked or len(walked) < UNNAMED


def check_steps(spec: ModelSpec, arrays: Arrays, outputs: Outputs, sizes: Sizes) -> None:
    """Raise ``GateError`` (OG412) where the model's ``steps`` do not fit what it returns."""
    if spec.steps is not None:
        feedback_of(spec, outputs.names).after(arrays, outputs.arrays, sizes)


def refused_at(
    number: int, case: str, refusal: Refusal | None, spec: ModelSpec, known: Iterable[Finding]
) -> list[Finding]:
    """Return a word on the step that the side refuses that is right, once for a model."""
    if any(codes.OG414.among(known)) or spec.steps is None:
        return []
    return [
        codes.OG414.finding(
            f"{spec.against} refuses step {number} of {spec.steps.count} in {case}: {refusal}. What came "
            "before it was compared",
            data={"step": number},
        )
    ]
