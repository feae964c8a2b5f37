"""From a diverged result to its diagnosis: which check, whom to blame, where, and a repro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.blame.result import BlameResult
from onnx_gate.diagnose.hints.hints import hints
from onnx_gate.diagnose.localize.localize import Located, localize
from onnx_gate.diagnose.repro.write import make_repro
from onnx_gate.diagnose.subject import Subject
from onnx_gate.diagnose.tie_break import decide_on_node
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check, Diagnosis, ModelResult
from onnx_gate.report.summary import failing
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import Context
from onnx_gate.verify.export.export import Exported
from onnx_gate.verify.judge.scale import Kinds

REPRO = Path("repro")
# What is left of the time is for telling the result.
_SHARE = 0.9
_BLAME_SHARE = 0.4
_LOCALIZE_SHARE = 0.8
_MEMORY_SHARE = 0.2
_LEAST_MEMORY = 64 << 20
_MOST_MEMORY = 2 << 30
_NOWHERE = ("model", "ill-conditioned")


def explain(
    result: ModelResult, checker: Checker, exported: Exported, context: Context, seconds: float
) -> dict[str, Any]:
    """Return ``{"diagnosis": ..., "findings": [...]}`` as JSON data, the diagnosis of the worst check.

    The diagnosis is null where the check cannot be run again. ``seconds`` is all the time there is.
    """
    deadline = Deadline(_SHARE * seconds)
    check = worst(result)
    again = checker.again(check) if check is not None else None
    if check is None or again is None:
        return {"diagnosis": None, "findings": []}
    case, output, runtime = again
    subject = Subject(
        spec=checker.spec,
        eager=checker.eager,
        exported=exported,
        graph_inputs=checker.graph_inputs,
        arrays=case.arrays,
        output=output,
        runtime=runtime,
        check=check,
        workspace=context.workspace,
        folder=context.folder / "diagnose",
        repro=context.folder / REPRO,
        threads=1,
        memory=_memory(checker),
        kinds=checker.experience[check.output].kinds
        if check.output in checker.experience
        else Kinds(),
    )
    subject.folder.mkdir(parents=True, exist_ok=True)
    diagnosis = diagnose(subject, deadline)
    findings = hints(diagnosis, exported.proto, check)
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    diagnosis = diagnosis.model_copy(update={"hints": codes})
    return {
        "diagnosis": to_message(diagnosis),
        "findings": [to_message(finding) for finding in findings],
    }


def worst(result: ModelResult) -> Check | None:
    """Return the check to diagnose: the worst of which there are numbers, else the worst."""
    bad = failing(result)
    return next((check for check in bad if check.metrics is not None), bad[0] if bad else None)


def diagnose(subject: Subject, deadline: Deadline) -> Diagnosis:
    """Blame, locate and cut out one diverged check, before ``deadline``."""
    blamed = find_blame(subject, _BLAME_SHARE * deadline.left)
    located = _located(subject, blamed, deadline)
    blamed = decide_on_node(subject, blamed, located, deadline.left)
    node = located.node if located is not None else None
    notes = [blamed.note, located.note if located is not None else ""]
    path = None
    left = deadline.left
    if blamed.blame not in _NOWHERE and left > 1:
        repro = make_repro(
            subject,
            node,
            located.inputs if located is not None else None,
            located.expected if located is not None else None,
            plain_agrees=blamed.plain_agrees,
            seconds=left,
        )
        notes.append(repro.reason)
        if repro.path is not None:
            path = (REPRO / repro.path.relative_to(subject.repro)).as_posix()
    return Diagnosis(
        runtime=subject.check.runtime,
        case=subject.check.case,
        output=subject.check.output,
        blame=blamed.blame,
        evidence=blamed.evidence,
        node=node,
        beside=located.beside if located is not None else None,
        fused_by=blamed.fused_by,
        source=located.source if located is not None else None,
        nodes=located.nodes if located is not None else (),
        guilty=_place(located),
        repro=path,
        note="; ".join(note for note in notes if note),
    )


def _place(located: Located | None) -> int | None:
    """The place of the guilty node among those along the graph."""
    if located is None or located.node is None:
        return None
    node = located.node
    names = [(each.name, each.op_type, each.output) for each in located.nodes]
    key = (node.name, node.op_type, node.output)
    return names.index(key) if key in names else None


def _located(subject: Subject, blamed: BlameResult, deadline: Deadline) -> Located | None:
    left = deadline.left
    # Where the plain graph agrees there is no node of it to name: only the fusion is.
    if blamed.blame in _NOWHERE or blamed.plain_agrees is True or left < 1:
        return None
    return localize(subject, _LOCALIZE_SHARE * left)


def _memory(checker: Checker) -> int:
    limit = checker.spec.memory or psutil.virtual_memory().available
    return int(min(_MOST_MEMORY, max(_LEAST_MEMORY, _MEMORY_SHARE * limit)))
