"""One model's file on this machine, held against what PyTorch said on another one: no torch here."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnx_gate.errors import GateError
from onnx_gate.files import sha256_of
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.report.model import Check, ModelError, ModelResult, Stage
from onnx_gate.runtimes.base import Array
from onnx_gate.text import counted, listed
from onnx_gate.verify.carried import (
    INDEX,
    SCHEMA,
    CarriedAnswers,
    CarriedCase,
    CarriedModel,
    unpacked,
)
from onnx_gate.verify.compared import Asked, Comparer, Setting, learn
from onnx_gate.verify.conclude import conclude, unverified
from onnx_gate.verify.context import Context, Given
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.inputs.cases import Case, selected
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.remarks import Tried
from onnx_gate.verify.sessions import Sessions, failure_findings
from onnx_gate.verify.steps.course import stepped
from onnx_gate.verify.steps.feedback import Arrays, feedback_of
from onnx_gate.verify.versions import version_findings

_AGAIN = "write them again: onnx-gate run --answers DIR"


def hold(
    spec: ModelSpec, given: Given, context: Context, emit: Callable[[Any], None]
) -> ModelResult:
    """Run the runtimes of ``spec`` on every case that was carried, and judge as a run does."""
    begin = time.perf_counter()
    emit({"kind": "stage", "name": "read"})
    try:
        if given.trouble:
            raise codes.OG431.error(given.trouble)
        index = read_index(given)
        read = time.perf_counter() - begin
        emit({"kind": "stage", "name": "verify"})
        result = _held(spec, index, given, context)
    except GateError as error:
        failure = ModelError.model_validate(
            {"kind": error.kind, "code": error.code, "message": error.message}
        )
        return ModelResult(name=spec.name, verdict="error", required=spec.required, error=failure)
    whole = time.perf_counter() - begin
    stages = (
        Stage(name="read", seconds=round(read, 4)),
        Stage(name="verify", seconds=round(whole - read, 4)),
    )
    return result.model_copy(update={"stages": stages, "export": given.export})


def read_index(given: Given) -> CarriedModel:
    """Return what a folder holds, every file of which is the one that was written.

    Raises ``GateError`` (OG431).
    """
    path = given.folder / INDEX
    _check(path, given.sha256)
    try:
        data = path.read_bytes()
        schema = json.loads(data).get("schema")
        if schema != SCHEMA:
            raise codes.OG431.error(
                f"{path}: schema {schema} where this version of onnx-gate reads {SCHEMA}: {_AGAIN}, "
                "with this version"
            )
        index = CarriedModel.model_validate_json(data)
    except (ValidationError, ValueError, AttributeError) as error:
        raise codes.OG431.error(f"{path}: no index of answers; {_AGAIN}") from error
    for name, digest in index.files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise codes.OG431.error(f"{path}: {name} is not a file beside it; {_AGAIN}")
        _check(given.folder / name, digest)
    return index


def _check(path: Path, digest: str) -> None:
    try:
        found = sha256_of(path)
    except OSError as error:
        raise codes.OG431.error(
            f"{path}: {error.strerror or error}; carry the whole folder, or {_AGAIN}"
        ) from error
    if found != digest:
        raise codes.OG431.error(
            f"{path}: it has the digest {found[:12]}… where {digest[:12]}… was written; carry the "
            f"folder again, or {_AGAIN}"
        )


def _held(spec: ModelSpec, index: CarriedModel, given: Given, context: Context) -> ModelResult:
    about = index.cases[0] if index.cases else None
    if not spec.inputs and about is not None:  # of a file, which has them
        spec = replace(spec, inputs={n: InputSpec(dtype, ()) for n, dtype in about.inputs.items()})
    spec = replace(spec, coverage=None)  # what needs the module was the other run's to decide
    setting = Setting(
        spec=spec,
        graph_outputs=index.outputs,
        workspace=context.workspace,
        threads=context.threads,
        reduced=index.reduced,
    )
    comparer: Comparer[CarriedAnswers] = Comparer(setting)
    checks: list[Check] = []
    with Sessions(
        given.folder / index.file, spec.runtimes, context.threads, comparer.tally.clock
    ) as sessions:
        walked = False
        for id, steps in itertools.groupby(index.cases, lambda each: each.id):
            if selected(id, context.patterns):
                way = _CarriedWay(spec, given.folder, deque(steps), comparer.tally.experience)
                checks += _case(comparer, way, sessions, index, measure=not walked)
                walked |= way.stepped
    runtimes = sessions.results()
    settled = comparer.settled(checks)
    findings = [
        *_left_out(index),
        *comparer.tally.findings,
        *sessions.findings,
        *failure_findings(runtimes),
    ]
    part = bool(context.patterns) or not index.whole
    tried = Tried(comparer.tally.experience, selected=part)
    verdict, judged, every = conclude(spec, settled, findings, tried, context.today)
    return ModelResult(
        name=spec.name,
        verdict=verdict,
        required=spec.required,
        error=unverified(judged, every) if verdict == "error" else None,
        findings=(*every, *version_findings()),
        checks=judged,
        runtimes=runtimes,
    )


class _CarriedWay:
    """PyTorch's way through the steps of a case, as it was written down (``Way``).

    ``left`` are the steps that it has: one, where the case was one call.
    """

    def __init__(
        self,
        spec: ModelSpec,
        folder: Path,
        left: deque[CarriedCase],
        experience: dict[str, Experience],
    ) -> None:
        self._folder, self._left, self._experience = folder, left, experience
        self.number, self.stepped = 0, len(left) > 1
        self._next()
        reference = self.asked.reference
        if self.stepped and reference is not None:
            self.feedback = feedback_of(spec, reference.outputs.names, self.case.steps)

    @property
    def arrays(self) -> Arrays:
        """The inputs of this step."""
        return self.case.arrays

    @property
    def sizes(self) -> Sizes:
        """The sizes in it."""
        return self.case.sizes

    def advance(self, outputs: tuple[Array, ...]) -> bool:
        """Go on to the next step that was written down; return whether there is one."""
        return bool(self._left) and self._next()

    def ask(self, case: Case) -> Asked[CarriedAnswers]:
        """Return what PyTorch said of this step."""
        return self.asked

    def _next(self) -> bool:
        about = self._left.popleft()
        self.number = about.step
        self.case, self.asked = unpacked(about, self._folder / about.file)
        if self.asked.reference is not None:
            learn(self._experience, self.asked.reference.outputs, self.asked.selected)
        return True


def _case(
    comparer: Comparer[CarriedAnswers],
    way: _CarriedWay,
    sessions: Sessions,
    index: CarriedModel,
    *,
    measure: bool,
) -> Iterator[Check]:
    case, asked = way.case, way.asked
    if way.stepped:
        yield from stepped(comparer, case, asked, sessions, index.inputs, way, measure=measure)
        return
    for label in sessions:
        answered = sessions.ask(label, case.arrays, index.inputs, comparer.setting.half)
        yield from comparer.one(case, label, asked, answered)


def _left_out(index: CarriedModel) -> list[Finding]:
    if not index.left_out:
        return []
    cases = listed(index.left_out, 3, "cases")
    return [
        codes.OG430.finding(
            f"the answers were carried without {counted(len(index.left_out), 'case')} that did not "
            f"fit: {cases}"
        )
    ]
