"""PyTorch of one environment, held against PyTorch of another: both have written their answers down.

Runs in a worker, as what it reads is what the models' processes have written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.nesting import name_in_file
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check, ModelError, ModelResult, Verdict
from onnx_gate.verify.carried import CarriedAnswers, unpacked
from onnx_gate.verify.compared import Answers, Asked, Comparer, Setting, learn
from onnx_gate.verify.context import Given
from onnx_gate.verify.held import read_index
from onnx_gate.verify.inputs.cases import Case

LABEL = "PyTorch"


def work(
    payload: tuple[ModelSpec, Path, Given, Given], emit: Callable[[dict[str, Any]], None]
) -> None:
    """Judge the head's answers as if a runtime had given them, on the cases that both have."""
    spec, workspace, base, head = payload
    try:
        checks = _checks(spec, workspace, base, head)
        bad = any(check.verdict == "diverged" and not check.advice for check in checks)
        verdict: Verdict = "diverged" if bad else "pass"
        result = ModelResult(name=spec.name, verdict=verdict, checks=checks)
    except GateError as error:
        failure = ModelError.model_validate(
            {"kind": error.kind, "code": error.code, "message": error.message}
        )
        result = ModelResult(name=spec.name, verdict="error", error=failure)
    emit({"kind": "result", "model": to_message(result)})


def _checks(spec: ModelSpec, workspace: Path, ours: Given, theirs: Given) -> tuple[Check, ...]:
    index = read_index(ours)
    others = {(each.id, each.step): each for each in read_index(theirs).cases}
    names = next((tuple(each.outputs) for each in index.cases if each.outputs), ())
    setting = Setting(
        spec=replace(spec, coverage=None, steps=None),
        graph_outputs=tuple(name_in_file(name, spec.inputs) for name in names),
        workspace=workspace,
        threads=1,
    )
    comparer: Comparer[CarriedAnswers] = Comparer(setting)
    checks: list[Check] = []
    for about in index.cases:
        if (about.id, about.step) not in others:
            continue
        other = others[about.id, about.step]
        case, asked = unpacked(about, ours.folder / about.file)
        other_case, answered = unpacked(other, theirs.folder / other.file)
        if not _same(case, other_case):
            continue  # made from what the module names, which is another one
        if asked.reference is not None:
            learn(comparer.tally.experience, asked.reference.outputs, asked.selected)
        if asked.reference is not None or answered.reference is not None:
            checks += comparer.one(case, LABEL, asked, _answer(answered))
    return comparer.settled(checks)


def _same(case: Case, other: Case) -> bool:
    mine, theirs = (
        {name: (array.dtype, array.shape, array.tobytes()) for name, array in each.arrays.items()}
        for each in (case, other)
    )
    return mine == theirs


def _answer(asked: Asked[CarriedAnswers]) -> Answers:
    if asked.reference is None:
        return None, asked.refusal
    return list(asked.reference.outputs.arrays), None
