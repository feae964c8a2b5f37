"""Where a 16-bit value leaves its range, and which nodes in float32 make the file right: tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.diagnose.repro.write import with_repro
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.graph import Graph, as_it_is
from onnx_gate.graph.walk import nodes as nodes_of
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.diagnosis import Diagnosis, Evidence
from onnx_gate.report.model.headroom import Headroom, ValueRange
from onnx_gate.report.story import headroom as words
from onnx_gate.report.story.summary import failing
from onnx_gate.runtimes.half import FLOAT32, HALF, HalfSession, Range
from onnx_gate.runtimes.half_graph import OUTPUTS
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.half import first_beyond, value_range
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.subject import Subject

# Cases that the nodes in float32 are tried on; all that diverge are tried at the end.
_CASES = 4
# How many times the error of the file in float32 what is still rounded may cost: of 40 files the most
# was twice, and a value out of its range costs ten times and more.
_AS_RIGHT, _WORSE = 4.0, 10.0
# A share of a value that is flushed and cannot be why an output differs.
_VISIBLE = 0.01


@dataclass(frozen=True)
class _Trial:
    case: Case
    asked: Asked[CaseReference]
    output: str


@dataclass(frozen=True)
class _Measure:
    """What a trial came to: whether it holds, and by how much it is off."""

    holds: bool
    nonfinite: int
    rms: float

    def is_as_right_as(self, other: _Measure) -> bool:
        """Return whether it is right, or no worse than rounding makes it."""
        if other.holds:
            return self.holds
        return self.nonfinite <= other.nonfinite and self.rms <= _AS_RIGHT * other.rms

    def is_worse_than(self, other: _Measure) -> bool:
        """Return whether more than rounding must be behind the difference of both."""
        if self.holds:
            return False
        return other.holds or self.nonfinite > other.nonfinite or self.rms > _WORSE * other.rms


_RIGHT = _Measure(True, 0, 0.0)


class Half:
    """The candidate ``half`` of a checked model, with any of its nodes in float32."""

    def __init__(self, checker: Checker, deadline: Deadline) -> None:
        self._checker, self._deadline = checker, deadline
        self._spec = next(
            (r for r in checker.setting.spec.runtimes if r.name == HALF), RuntimeSpec(HALF)
        )
        self.label = self._spec.label

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._deadline.left

    def trials(self, checks: Sequence[Check]) -> Iterator[_Trial]:
        """Yield what it takes to run these checks again."""
        for check in checks:
            again = self._checker.again(check)
            if again is not None and check.steps is None and not self._deadline.passed():
                yield _Trial(again[0], self._checker.ask(again[0]), check.output)

    def run(self, trial: _Trial, wide: Sequence[str] = ()) -> tuple[_Measure, tuple[Range, ...]]:
        """Return how one case comes out with these nodes in float32, and what its values were."""
        self._deadline.check()
        spec = replace(self._spec, options={**self._spec.options, FLOAT32: tuple(wide)})
        checker = self._checker
        with Sessions(checker.setting.path, (spec,), 1, checker.tally.clock) as sessions:
            sessions[self.label] = session = sessions.pop(spec.label)
            checks = checker.recheck(trial.case, trial.asked, sessions)
            assert isinstance(session, HalfSession)
            ranges = tuple(session.ranges)
        own = [c for c in checks if c.output == trial.output]
        return (_measured(own[0]) if own else _Measure(False, 1 << 62, 0.0)), ranges

    def blocks(
        self, trials: Sequence[_Trial], ranges: Sequence[Range], names: Sequence[str], graph: Graph
    ) -> tuple[str, ...]:
        """Return the nodes that in float32 make all trials right, none of which can be left out.

        Nothing where all of them do not.
        """
        best = [self.run(trial, (*names, OUTPUTS))[0] for trial in trials]

        def right(wide: Sequence[str]) -> bool:
            return all(
                self.run(trial, wide)[0].is_as_right_as(known)
                for trial, known in zip(trials, best, strict=True)
            )

        ends = () if right(names) else (OUTPUTS,)
        near = _near(ranges, graph)
        start = [name for name in names if name in near]
        if not start or not right((*start, *ends)):
            start = list(names)
            if not right((*start, *ends)):
                return ()
        return (*_fewest(start, lambda some: right((*some, *ends))), *ends)


def _near(ranges: Sequence[Range], graph: Graph) -> set[str]:
    """Return the nodes whose results overflow, and those that read them, through what only moves."""
    near: set[str] = set()
    pending = [each.watched.name for each in ranges if each.overflows]
    computed = {each.watched.name for each in ranges}
    while pending:
        name = pending.pop()
        made = graph.producer.get(name)
        readers = graph.readers.get(name, [])
        for node in (*([made] if made is not None else []), *readers):
            key = node.proto.name or node.proto.output[0]
            if key not in near:
                near.add(key)
                pending += [o for o in node.outputs if node in readers and o not in computed]
    return near


def _fewest(names: list[str], right: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return names of which none can be left out: halves are left out first, then ever fewer."""
    size = max(len(names) // 2, 1)
    while True:
        place = 0
        while place < len(names) and len(names) > 1:
            fewer = names[:place] + names[place + size :]
            if fewer and right(fewer):
                names = fewer
            else:
                place += size
        if size == 1:
            return names
        size = max(size // 2, 1)


def of_half(
    result: ModelResult,
    checker: Checker,
    subject_of: Callable[[Check], Subject | None],
    left: Deadline,
) -> tuple[Diagnosis | None, Headroom, Finding] | None:
    """Return what is to be said of values that leave the range of 16 bits; ``None`` where none does.

    The diagnosis is ``None`` where no check diverged for it.
    """
    headroom = result.headroom
    if headroom is None:
        return None
    half = Half(checker, left)
    bad = failing(result)
    elsewhere = {(c.case, c.output): _measured(c) for c in bad if c.runtime != half.label}
    here = {(c.case, c.output): _measured(c) for c in bad if c.runtime == half.label}
    # What is as far off without rounding is no matter of it.
    own = [
        check
        for check in bad
        if check.runtime == half.label
        and _measured(check).is_worse_than(elsewhere.get((check.case, check.output), _RIGHT))
    ]
    answered = {(c.case, c.output) for c in result.checks if c.runtime == half.label} - here.keys()
    others = [c for c in bad if c.runtime != half.label and (c.case, c.output) in answered]
    if own:
        return _of_own(own, half, headroom, subject_of)
    if others:
        return _of_module(others, half, headroom, subject_of)
    if headroom.first is None or bad:
        return None
    check = next((c for c in result.checks if c.runtime == half.label and not c.advice), None)
    subject = subject_of(check) if check is not None else None
    if check is None or subject is None:
        return None
    graph = _graph(subject)
    first = _placed(headroom.first, subject, graph)
    masked = all(node.op_type.endswith("Softmax") for node in graph.readers.get(first.output, []))
    headroom = headroom.model_copy(update={"first": first})
    finding = _finding(headroom, "; no case differs for it", "note" if masked else "warning")
    return None, headroom, finding


def _measured(check: Check) -> _Measure:
    metrics = check.metrics
    if metrics is None:
        return _Measure(False, 1 << 62, 0.0)
    return _Measure(check.verdict == "pass", metrics.nonfinite, metrics.rms)


def _of_own(
    own: Sequence[Check], half: Half, headroom: Headroom, subject_of: Any
) -> tuple[Diagnosis | None, Headroom, Finding] | None:
    """Explain checks of the candidate itself that diverge."""
    check = max(own, key=lambda c: c.metrics is not None and (c.metrics.nonfinite, c.metrics.rms))
    subject = subject_of(check)
    if subject is None:
        return None
    graph = _graph(subject)
    names = [each.name or each.output[0] for each, _ in nodes_of(subject.exported.proto.graph)]
    trials = list(half.trials([check, *(c for c in own if c is not check)][:_CASES]))
    if not trials:
        return None
    rounded, ranges = half.run(trials[0])
    if not rounded.is_worse_than(half.run(trials[0], (*names, OUTPUTS))[0]):
        return None
    wide = half.blocks(trials, ranges, names, graph)
    nodes = tuple(name for name in wide if name != OUTPUTS)
    first = first_beyond(ranges) or next(
        (
            r
            for r in ranges
            if r.small > _VISIBLE and (r.watched.node.name or r.watched.name) in nodes
        ),
        None,
    )
    if first is None:
        return None
    placed = _placed(value_range(first), subject, graph)
    headroom = headroom.model_copy(
        update={"first": placed, "in_float32": nodes, "outputs": OUTPUTS in wide}
    )
    diagnosis, headroom, finding = _told(check, headroom, subject)
    return with_repro(subject, diagnosis, half.left), headroom, finding


def _of_module(
    others: Sequence[Check], half: Half, headroom: Headroom, subject_of: Any
) -> tuple[Diagnosis | None, Headroom, Finding] | None:
    """Explain that the module itself leaves the range, where others compute in float32."""
    subject = subject_of(others[0])
    trial = next(half.trials(others[:1]), None)
    if subject is None or trial is None:
        return None
    ranges = half.run(trial)[1]
    # What does not overflow where both agree that far off the rest is flushed.
    first = first_beyond(ranges) or max(ranges, key=lambda each: each.small, default=None)
    if first is None or not (first.overflows or first.small > _VISIBLE):
        return None
    placed = _placed(value_range(first), subject, _graph(subject))
    headroom = headroom.model_copy(update={"first": placed, "shared": True})
    return _told(others[0], headroom, subject)


def _told(
    check: Check, headroom: Headroom, subject: Subject
) -> tuple[Diagnosis, Headroom, Finding]:
    first = headroom.first
    assert first is not None
    diagnosis = Diagnosis(
        runtime=check.runtime,
        case=check.case,
        output=check.output,
        blame="reduced precision",
        against=subject.spec.against,
        evidence=(
            Evidence(
                kind="ranges",
                decisive=True,
                experiment=f"every result rounded to {headroom.dtype} as it is stored",
                outcome=words.beyond(headroom),
                agrees=headroom.shared,
            ),
        ),
        node=first.node,
        source=first.source,
        note=words.remedy(headroom),
    )
    return diagnosis, headroom, _finding(headroom, f": {words.remedy(headroom)}", "note")


def _finding(headroom: Headroom, more: str, severity: Any) -> Finding:
    return codes.OG420.finding(
        f"{words.beyond(headroom)}{more}",
        severity=severity,
        at=headroom.first.source if headroom.first is not None else None,
        data={"in_float32": list(headroom.in_float32), "outputs": headroom.outputs},
    )


def _graph(subject: Subject) -> Graph:
    return as_it_is(subject.exported.proto, subject.exported.path)


def _placed(each: ValueRange, subject: Subject, graph: Graph) -> ValueRange:
    """Return a value with its module and its line."""
    node = graph.producer.get(each.output)
    if node is None:
        return each
    origins = Origins(subject)
    update = {
        "module": origins.module(node, each.output) or None,
        "source": origins.source(node, each.output),
    }
    return each.model_copy(update=update)
