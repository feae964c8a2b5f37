"""What is wrong between a module and its file as a whole, found without looking at any node but one.

Two inputs or two outputs that take each other's place, an input that nothing hangs on, a part in
training mode, a check of ``forward`` that no graph holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from onnx_gate.diagnose.bench import RUN, Bench
from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.values import allowance, distance
from onnx_gate.manifest import EXPORTERS
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.open import open_session
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.text import quote
from onnx_gate.verify.determinism import TRAINING
from onnx_gate.verify.inputs.example import examples
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.sessions import answers_of
from onnx_gate.verify.source_lines import of_error, own_source
from onnx_gate.verify.subject import Subject

# Pairs of inputs that are tried, and inputs.
_PAIRS = 20
_INPUTS = 8
# What is left of an error that is gone: the rest of a model rounds, too.
_GONE = 1e-3


@dataclass(frozen=True)
class Cause:
    """What an experiment singled out, what to do about it, and where, if not where the node is."""

    told: str
    remedy: str = ""
    source: Source | None = None


def of_the_whole(subject: Subject, located: Located, seconds: float) -> Cause | None:
    """Return what is wrong with the file as a whole, ``None`` where no experiment shows it."""
    bench = Bench(subject, seconds)
    cause, _ = bench.apart(lambda: _look(subject, bench.eager, located), RUN)
    return cause


def _look(subject: Subject, eager: Eager, located: Located) -> Cause | None:
    try:
        expected = eager.run(subject.arrays)
    except Refusal as refusal:
        return _refusing(subject, refusal)
    live = state.in_training(eager.module)
    module = located.node.module if located.node is not None else ""
    if module and module in live:
        told = f"{quote(module)} is in training mode, though the gate called eval(), and the file's is not"
        return Cause(told, TRAINING)
    wide = _left_wide(subject, expected.arrays[subject.output])
    return wide or _ignored(subject, eager, expected) or _exchanged(subject, eager, expected)


def _left_wide(subject: Subject, expected: Array) -> Cause | None:
    """Return the cause where an exporter of torch's computes an output of 16 bits in float32.

    It converts the result back where something reads it, and not at the end of the graph.
    """
    if subject.check.form != "dtype" or subject.exported.exporter not in EXPORTERS:
        return None
    name = str(expected.dtype)
    session = open_session(subject.exported.path, subject.runtime)
    if name not in ("float16", "bfloat16") or session.outputs[subject.output].dtype != "float32":
        return None
    back = ".half()" if name == "float16" else ".bfloat16()"
    return Cause(
        f"the exporter computes an output of {name} in float32, and leaves it so",
        f"write `.float()` in front of what makes it, and `{back}` behind that",
    )


def _refusing(subject: Subject, refusal: Refusal) -> Cause:
    line = of_error(refusal.__cause__, subject.workspace) if refusal.__cause__ else None
    remedy = "take the values that forward refuses out of ranges and suites"
    if subject.check.sizes:
        remedy = "name the sizes that are meant under dims"
    return Cause(
        "forward raises there, which a graph cannot",
        f"{remedy}, and refuse the others before the file is asked",
        own_source(line),
    )


def _ignored(subject: Subject, eager: Eager, expected: Outputs) -> Cause | None:
    """Return the cause where an input has no effect at all on the file's output, and on the module's."""
    session = open_session(subject.exported.path, subject.runtime)

    def answer(arrays: Mapping[str, Array]) -> Array | None:
        made = answers_of(session, arrays, subject.graph_inputs, subject.half)[0]
        return made[subject.output] if made else None

    ours, theirs = answer(subject.arrays), expected.arrays[subject.output]
    if ours is None or not is_floating(ours.dtype) or not np.isfinite(ours).all():
        return None  # around a limit all truths, and classes, may be on one side of it
    allowed = allowance(theirs)
    for name, array in itertools.islice(subject.arrays.items(), _INPUTS):
        needed = effect = False
        for changed in _changed(array):
            arrays = {**subject.arrays, name: changed}
            made = answer(arrays)
            effect |= made is None or not np.array_equal(made, ours)
            if effect:
                break
            with suppress(Refusal):
                other = eager.run(arrays).arrays[subject.output]
                needed |= not distance(other, theirs) <= allowed
        if needed and not effect:
            against = subject.spec.against
            told = f"the file's output does not depend on {quote(name)}, and {against}'s does"
            return Cause(told)
    return None


def _changed(array: Array) -> Iterator[Array]:
    """Yield other values of an input that are all its own, in other places."""
    for other in (np.flip(array), np.roll(array, 1), np.roll(array, array.size // 2)):
        if not np.array_equal(other, array):
            yield np.ascontiguousarray(other)


def _exchanged(subject: Subject, eager: Eager, expected: Outputs) -> Cause | None:
    """Return the cause where exchanging two outputs, or inputs, makes the file right on every case.

    On the diverged one and on an ordinary one: at an edge others agree by chance.
    """
    session = open_session(subject.exported.path, subject.runtime)

    def answers(arrays: Mapping[str, Array]) -> Sequence[Array]:
        return answers_of(session, arrays, subject.graph_inputs, subject.half)[0] or ()

    ordinary = _ordinary(subject, eager, answers)
    if ordinary is None:
        return None
    own = _Answered(subject.arrays, expected.arrays, answers(subject.arrays))
    exporter = subject.exported.exporter
    place = f"in {exporter}" if ":" in exporter else "where the file is written"
    for told, turned in _exchanges(expected.names, subject):
        if all(turned(case, answers) for case in (own, ordinary)):
            return Cause(told, f"exchange them {place}")
    return None


_Answers = Callable[[Mapping[str, Array]], Sequence[Array]]


@dataclass(frozen=True)
class _Answered:
    """Inputs, and what the module and the file make of them."""

    arrays: Mapping[str, Array]
    expected: Sequence[Array]
    actual: Sequence[Array]

    def agrees(self, actual: Sequence[Array]) -> bool:
        """Return whether other answers are the module's, but for the rounding of a whole model."""
        if not len(actual) == len(self.expected) == len(self.actual):
            return False
        return all(map(is_near, actual, self.expected, self.actual))


def is_near(one: Array, other: Array, was: Array) -> bool:
    """Return whether an answer is the other but for rounding, where it was another one before."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    error = distance(was, other)
    rest = _GONE * error if np.isfinite(error) else 0.0
    return distance(one, other) <= max(allowance(other), rest)


def _ordinary(subject: Subject, eager: Eager, answers: _Answers) -> _Answered | None:
    """Return the first inputs that an export would be made with and both sides answer."""
    for _, arrays in examples(subject.spec, subject.workspace, subject.exported.example or None):
        with suppress(Refusal):
            expected, actual = eager.run(arrays).arrays, answers(arrays)
            if actual:
                return _Answered(arrays, expected, actual)
    return None


def _exchanges(
    names: Sequence[str], subject: Subject
) -> Iterator[tuple[str, Callable[[_Answered, _Answers], bool]]]:
    """Yield which outputs or inputs may be exchanged, and whether they are in a case."""

    def outputs(one: int, two: int, case: _Answered, _: _Answers) -> bool:
        turned = list(case.actual)
        if len(turned) != len(names) or case.agrees(turned):
            return False
        turned[one], turned[two] = turned[two], turned[one]
        return case.agrees(turned)

    def inputs(one: str, two: str, case: _Answered, answers: _Answers) -> bool:
        arrays = case.arrays
        return case.agrees(answers({**arrays, one: arrays[two], two: arrays[one]}))

    own = subject.output
    for other in range(len(names)):
        if other != own:
            one, two = quote(names[own]), quote(names[other])
            told = f"the file has {two} where {one} belongs, and {one} where {two} belongs"
            yield told, partial(outputs, own, other)
    alike = (
        (a, b)
        for a, b in itertools.combinations(subject.arrays, 2)
        if subject.arrays[a].shape == subject.arrays[b].shape
        and subject.arrays[a].dtype == subject.arrays[b].dtype
    )
    for a, b in itertools.islice(alike, _PAIRS):
        told = f"the file takes {quote(a)} for {quote(b)}, and {quote(b)} for {quote(a)}"
        yield told, partial(inputs, a, b)
