"""What the experiments on one subject share: PyTorch's answer, the record, and what counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from onnx_gate.diagnose.bench import Answer, Bench, Fresh
from onnx_gate.diagnose.blame.agreement import SAME_SHARE, Agreement, LinkComparison
from onnx_gate.diagnose.blame.captures import traced
from onnx_gate.report.model.diagnosis import Evidence, Experiment
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.subject import Subject

# What torch's tracer says of a branch, and of numbers that Python may decide by. Integers are mostly sizes.
_BRANCHES = ("Python boolean", "Python float", "Python number")


@dataclass(frozen=True)
class Tracing:
    """``alike``: tracing explains the error of the graph. ``bakes``: it warns, and differs."""

    alike: bool = False
    bakes: bool = False


class Chain:
    """The experiments on one subject; ``evidence`` grows as they are made.

    ``total`` is the error that is being explained, ``explained`` that rounding explains it, so
    that only the tolerance does not forgive it. ``plain`` is what runs the file as it is written.
    """

    def __init__(self, subject: Subject, seconds: float) -> None:
        self.subject = subject
        self.against: str = subject.spec.against
        self.bench = Bench(subject, seconds)
        self.agreement = Agreement(self.bench, subject.arrays, Answer())
        self.evidence: list[Evidence] = []
        self.total: float | None = None
        self.plain = PLAIN
        self.explained = False

    def ask(
        self, kind: Experiment, experiment: str, answer: Answer, *, exporter: str = ""
    ) -> LinkComparison:
        """Hold an answer against PyTorch's, weigh the difference and keep it as evidence."""
        told = f"{experiment}, against {self.against}"
        return self.record(kind, told, self.against_torch(answer), exporter=exporter)

    def against_torch(self, answer: Answer) -> LinkComparison:
        """Hold an answer against PyTorch's and weigh the difference."""
        return self.weigh(self.agreement.compare(answer))

    def on_the_example(
        self, experiment: str, fresh: Fresh | None = None, *, exporter: str = ""
    ) -> bool | None:
        """Record whether a graph is right on the inputs that it was exported with, and return it.

        It is the plain graph of the file, or of a ``fresh`` export.
        """
        example = self.bench.example()
        if example is None:
            return None
        arrays, expected = example
        other = any(a.shape != self.subject.arrays[n].shape for n, a in arrays.items())
        sizes = ", ".join(f"{n} {list(a.shape)}" for n, a in arrays.items())
        measured: LinkComparison = Agreement(self.bench, arrays, expected).compare_roughly(
            self.bench.runtime(self.plain, arrays, fresh), self.total
        )
        where = f" ({sizes})" if other else ""
        experiment = f"{experiment}, on the export's example{where}"
        return self.record("export's example", experiment, measured, exporter=exporter).agrees

    def trace(self, plain: Answer, *, by_tracing: bool) -> Tracing:
        """Return whether tracing is where the plain graph's error comes from.

        Where the graph was made ``by_tracing``, it is if a trace differs from PyTorch; else the
        trace has to make the very error. A branch that was traced on unknown inputs is looked for
        on inputs that may take it.
        """
        drawn = self.bench.example()
        if drawn is None:
            return Tracing()
        example, other, bakes = drawn[0], "the export's example", False
        for inputs in (example, *_variants(example)):
            answer = traced(self.bench, inputs, self.subject.arrays)
            measured = self.agreement.compare(answer)
            bakes |= measured.agrees is False and bool(answer.noticed)
            measured = self.weigh(measured)
            alike = measured.agrees is False and (
                (by_tracing and inputs is example)
                or self.agreement.near(answer, plain).agrees is True
            )
            if alike or inputs is example:
                warned = f"; torch warns at {answer.noticed[0]}" if answer.noticed else ""
                self.record(
                    "traced",
                    f"torch.jit.trace of the module on {other}, against {self.against}",
                    replace(measured, outcome=measured.outcome + warned),
                )
            branches = (b in warning for warning in answer.noticed for b in _BRANCHES)
            if alike or not any(branches):
                return Tracing(alike, bakes)
            other = "other inputs"
        return Tracing(bakes=bakes)

    def weigh(self, measured: LinkComparison) -> LinkComparison:
        """Take a difference for agreement that is only a small part of the divergence.

        Where rounding explains the divergence, and only the tolerance does not forgive it, a link
        that has most of it counts as broken.
        """
        if measured.agrees is None or measured.error is None or self.total is None:
            return measured
        small = measured.error <= SAME_SHARE * self.total
        if math.isinf(self.total):
            small = measured.error <= SAME_SHARE
        if measured.agrees is False and small:
            return replace(
                measured, agrees=True, outcome=f"{measured.outcome}, a small part of it all"
            )
        if self.explained and measured.agrees and not small:
            return replace(
                measured, agrees=False, outcome=f"{measured.outcome}; it is all of the divergence"
            )
        return measured

    def record(
        self, kind: Experiment, experiment: str, measured: LinkComparison, *, exporter: str = ""
    ) -> LinkComparison:
        """Keep an experiment as evidence."""
        self.evidence.append(measured.evidence(kind, experiment, exporter))
        return measured


def _variants(arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield inputs that other branches of a model may take: negated, zeros, ones."""
    for change in (np.negative, np.zeros_like, np.ones_like):
        yield {
            name: change(array) if array.dtype.kind == "f" else array
            for name, array in arrays.items()
        }
