"""Which other runtimes diverge otherwise than a diagnosis says, and why each of them does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.bench import Bench
from onnx_gate.diagnose.blame.agreement import Agreement, LinkComparison
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.blame.chain import Chain
from onnx_gate.diagnose.blame.dtype import of_dtype
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.diagnosis import Blame, Diagnosis, Evidence
from onnx_gate.report.story.summary import failing
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.subject import Subject

# Any other blame is of the model or its file, and the same on every runtime.
_OF_A_RUNTIME: tuple[Blame, ...] = ("kernel", "optimiser")
_LEAST_SECONDS = 2.0


def further(
    result: ModelResult,
    first: Diagnosis,
    subject_of: Callable[[Check], Subject | None],
    diagnose: Callable[[Subject, Deadline], Diagnosis],
    deadline: Deadline,
) -> Iterator[tuple[Diagnosis, Check]]:
    """Yield a diagnosis for each runtime whose divergence those before it do not explain.

    They explain the same wrong answer, and what has the same cause where that is none of one
    runtime's. Where ONNX Runtime is wrong, too, no engine is said to compute a right graph wrongly.
    """
    bad = failing(result)
    told = [first]
    labels = [label for label in dict.fromkeys(c.runtime for c in bad) if label != first.runtime]
    for number, label in enumerate(labels):
        left = Deadline(deadline.left / (len(labels) - number))
        check = _unexplained(label, {each.runtime for each in told}, bad)
        subject = subject_of(check) if left.left > _LEAST_SECONDS else None
        if subject is None:
            continue
        alike = {c.runtime for c in bad if (c.case, c.output) == (check.case, check.output)}
        wrong = [each for each in subject.spec.runtimes if each.label in alike]
        before = {each.runtime for each in told}
        compared = _compared(subject, [r for r in wrong if r.label in before], left)
        if any(each.agrees for each in compared):
            continue
        if any(each.engine.plain for each in wrong if each.label != label):
            diagnosis = _beside(subject, compared, left)
        else:
            diagnosis = diagnose(subject, left)
        if diagnosis.blame in _OF_A_RUNTIME or diagnosis.blame not in {e.blame for e in told}:
            told.append(diagnosis)
            yield diagnosis, check


def _unexplained(label: str, told: set[str], bad: Sequence[Check]) -> Check:
    """Return the check of a runtime to look into: if any, one that no runtime fails that was told."""
    known = {(c.case, c.output) for c in bad if c.runtime in told}
    own = [check for check in bad if check.runtime == label]
    own = [check for check in own if (check.case, check.output) not in known] or own
    return next((check for check in own if check.metrics is not None), own[0])


def _compared(
    subject: Subject, others: Sequence[RuntimeSpec], deadline: Deadline
) -> list[Evidence]:
    """Hold a runtime's wrong answer against the wrong ones of others."""
    if not others:
        return []
    bench = Bench(subject, deadline.left)
    expected = bench.eager_answer(bench.eager, subject.arrays)
    agreement = Agreement(bench, subject.arrays, expected)
    own = bench.runtime(subject.runtime, subject.arrays)
    return [
        _evidence(subject, each.label, agreement.near(own, bench.runtime(each, subject.arrays)))
        for each in others
    ]


def _beside(subject: Subject, compared: Sequence[Evidence], deadline: Deadline) -> Diagnosis:
    """Return whose the error is that an engine adds to a file that ONNX Runtime has wrong, too.

    What ONNX Runtime answers is what the file says where the reference evaluator answers the same.
    """
    chain = Chain(subject, deadline.left)
    bench, arrays = chain.bench, subject.arrays
    chain.agreement = Agreement(bench, arrays, bench.eager_answer(bench.eager, arrays))
    plain, own = bench.runtime(PLAIN, arrays), bench.runtime(subject.runtime, arrays)
    same = chain.agreement.near(bench.evaluator(arrays), plain)
    apart = chain.agreement.near(own, plain)
    chain.against, chain.agreement = "ONNX Runtime", Agreement(bench, arrays, plain)
    chain.evidence += [
        *compared,
        _evidence(subject, PLAIN.label, same, "ONNX reference evaluator"),
        _evidence(subject, PLAIN.label, apart),
    ]
    blamed = BlameResult("undecided")
    if same.agrees and apart.agrees is False:
        blamed = of_dtype(chain, own) or BlameResult("kernel", "same error")
    blamed = replace(blamed, evidence=tuple(chain.evidence)).marked()
    return Diagnosis(
        runtime=subject.check.runtime,
        case=subject.check.case,
        output=subject.check.output,
        blame=blamed.blame,
        against=subject.spec.against,
        evidence=blamed.evidence,
        cause=blamed.cause,
        note="it answers neither what PyTorch does nor what ONNX Runtime makes of the same file",
    )


def _evidence(subject: Subject, label: str, measured: LinkComparison, of: str = "") -> Evidence:
    told = f"{of or subject.check.runtime} against {label}, on the same file"
    return measured.evidence("same error", told)
