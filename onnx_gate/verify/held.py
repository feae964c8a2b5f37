"""One model's file on this machine, held against what PyTorch said on another one: no torch here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
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
from onnx_gate.text import counted, listed
from onnx_gate.verify.carried import (
    INDEX,
    SCHEMA,
    CarriedAnswers,
    CarriedModel,
    unpacked,
)
from onnx_gate.verify.compared import Asked, Comparer, Setting, learn
from onnx_gate.verify.conclude import Tried, conclude, unverified
from onnx_gate.verify.context import Context, Given
from onnx_gate.verify.inputs.cases import Case, selected
from onnx_gate.verify.sessions import Sessions, failure_findings
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
    # What needs the module, or several calls, was the other run's to decide.
    spec = replace(spec, coverage=None, steps=None)
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
        for about in index.cases:
            if selected(about.id, context.patterns):
                case, asked = unpacked(about, given.folder / about.file)
                checks += _case(comparer, case, asked, sessions, index)
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


def _case(
    comparer: Comparer[CarriedAnswers],
    case: Case,
    asked: Asked[CarriedAnswers],
    sessions: Sessions,
    index: CarriedModel,
) -> list[Check]:
    if asked.reference is not None:
        learn(comparer.tally.experience, asked.reference.outputs, asked.selected)
    checks: list[Check] = []
    for label in sessions:
        answered = sessions.ask(label, case.arrays, index.inputs, comparer.setting.half)
        checks += comparer.one(case, label, asked, answered)
    return checks


def _left_out(index: CarriedModel) -> list[Finding]:
    said = []
    if index.left_out:
        cases = listed(index.left_out, 3, "cases")
        said.append(f"without {counted(len(index.left_out), 'case')} that did not fit: {cases}")
    if index.stepped:
        said.append("with one call of each case, of which the manifest asks for several in a row")
    return [codes.OG430.finding(f"the answers were carried {what}") for what in said]
