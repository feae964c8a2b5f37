"""Why and where a block is wrong, of a model that is verified block by block: searched in its piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.known_fault import known_fault
from onnx_gate.diagnose.localize.localize import Located, localize
from onnx_gate.diagnose.repro.write import MAX_BYTES, make_repro, repro_path
from onnx_gate.diagnose.single_out import single_out
from onnx_gate.diagnose.tie_break import decide_on_node
from onnx_gate.diagnose.whole import Cause
from onnx_gate.report.io import to_message
from onnx_gate.report.model.diagnosis import Blame, Diagnosis
from onnx_gate.verify.subject import Subject

# As of whole models: what each search has of the seconds.
_BLAME_SHARE = 0.4
_LOCALIZE_SHARE = 0.8
# Which of them made a graph wrong takes the program that was captured, and exports of the whole model.
_MADE_IT: tuple[Blame, ...] = ("capture", "exporter")
# Who a known fault may be of, where no experiment says more.
_MAY_BE: Mapping[Blame, tuple[Blame, ...]] = {
    "graph": ("exporter",),
    "undecided": ("exporter", "kernel"),
}


def locate(cause: str, subject: Subject, seconds: float) -> dict[str, Any]:
    """Return the diagnosis of a stage as JSON data.

    ``cause`` says which stage is wrong. ``subject`` is the check on the stage's piece with its weights.
    Where the piece's graph itself is wrong it blames that, and nobody who may have made it so.
    """
    subject.folder.mkdir(parents=True, exist_ok=True)
    deadline, check = Deadline(seconds), subject.check
    blamed = find_blame(subject, _BLAME_SHARE * seconds)
    located, singled = Located(), Cause("")
    if blamed.plain_agrees is not True:
        located = localize(subject, _LOCALIZE_SHARE * deadline.left)
        blamed = decide_on_node(subject, blamed, located, deadline.left)
    blame: Blame = "graph" if blamed.blame in _MADE_IT else blamed.blame
    if blame in _MAY_BE:
        singled = single_out(subject, located, deadline.left)
    path, notes = None, [blamed.note, located.note]
    # What is cut down is in memory several times, and nothing larger is written.
    if subject.exported.size <= MAX_BYTES:
        plain = blamed.plain_agrees
        repro = make_repro(subject, located, plain_agrees=plain, seconds=deadline.left)
        path = repro_path(subject, repro)
        notes.append(repro.reason)
    node = located.node
    if node is not None:
        inside = node.module or check.block
        cause += f", first at {node.op_type}" + (f" in {inside}" if inside else "")
    diagnosis = Diagnosis(
        runtime=check.runtime,
        case=check.case,
        output=check.output,
        blame=blame,
        refused="runtime" in check.refused,
        evidence=blamed.evidence,
        node=node,
        beside=located.beside,
        fused_by=blamed.fused_by,
        cause=f"{cause}: {singled.told}" if singled.told else cause,
        remedy=singled.remedy or blamed.remedy,
        source=singled.source or located.source,
        nodes=located.nodes,
        guilty=located.guilty,
        repro=path,
        note="; ".join(filter(None, notes)),
        pictures=blamed.pictures,
    )
    known = None
    for each in _MAY_BE.get(blame, (blame,)):
        guess = diagnosis.model_copy(update={"blame": each})
        known = known or known_fault(guess, subject.exported, check, [subject.runtime])
    return to_message(diagnosis.model_copy(update={"known": known}))
