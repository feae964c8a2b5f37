"""What is wrong between a module and its file as a whole, found without looking at any node but one.

Two inputs or two outputs that take each other's place, a part in training mode, a check of
``forward`` that no graph holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_gate.diagnose.bench import RUN, Bench
from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.values import allowance, distance
from onnx_gate.manifest import EXPORTERS
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.open import open_session
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.text import quote
from onnx_gate.verify.determinism import TRAINING
from onnx_gate.verify.sessions import answers_of
from onnx_gate.verify.source_lines import of_error, own_source
from onnx_gate.verify.subject import Subject

# Pairs of inputs that are tried.
_PAIRS = 20
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
    return wide or _exchanged(subject, expected.names, expected.arrays)


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


def _exchanged(subject: Subject, names: Sequence[str], expected: Sequence[Array]) -> Cause | None:
    session = open_session(subject.exported.path, subject.runtime)

    def answers(arrays: Mapping[str, Array]) -> Sequence[Array]:
        return answers_of(session, arrays, subject.graph_inputs, subject.half)[0] or ()

    exporter = subject.exported.exporter
    place = f"in {exporter}" if ":" in exporter else "where the file is written"
    remedy = f"exchange them {place}, or in the manifest"
    actual, index = answers(subject.arrays), subject.output
    if len(actual) != len(expected):
        return None
    error = distance(actual[index], expected[index])
    rest = _GONE * error if np.isfinite(error) else 0.0

    def same(one: Array, other: Array) -> bool:
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and distance(one, other) <= max(allowance(other), rest)

    for other in range(len(expected)):
        if other == index or same(expected[index], expected[other]):
            continue
        if same(actual[index], expected[other]) and same(actual[other], expected[index]):
            one, two = quote(names[index]), quote(names[other])
            told = f"the file has {two} where {one} belongs, and {one} where {two} belongs"
            return Cause(told, remedy)
    alike = (
        (a, b)
        for a, b in itertools.combinations(subject.arrays, 2)
        if subject.arrays[a].shape == subject.arrays[b].shape
        and subject.arrays[a].dtype == subject.arrays[b].dtype
    )
    for a, b in itertools.islice(alike, _PAIRS):
        turned = {**subject.arrays, a: subject.arrays[b], b: subject.arrays[a]}
        found = answers(turned)
        if len(found) == len(expected) and all(map(same, found, expected)):
            told = f"the file takes {quote(a)} for {quote(b)}, and {quote(b)} for {quote(a)}"
            return Cause(told, remedy)
    return None
