"""Where a block of a model that is verified block by block is wrong: the first node of its piece."""

from __future__ import annotations

from typing import Any

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.known_fault import known_fault
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.diagnose.repro.write import MAX_BYTES, make_repro, repro_path
from onnx_gate.report.io import to_message
from onnx_gate.report.model.diagnosis import Blame, Diagnosis
from onnx_gate.verify.subject import Subject

# As of whole models: what the search for the node has of the seconds.
_LOCALIZE_SHARE = 0.8
# Who may have made a node wrong that is so on PyTorch's own values, with optimisations or without.
_MAY_BE: tuple[Blame, ...] = ("exporter", "kernel")


def locate(cause: str, subject: Subject, seconds: float) -> dict[str, Any]:
    """Return the diagnosis of a stage as JSON data; it blames nobody.

    ``cause`` says which stage is wrong. ``subject`` is the check on the stage's piece with its weights.
    The chain of exports and runtimes that blame goes along takes the whole model.
    """
    subject.folder.mkdir(parents=True, exist_ok=True)
    deadline, check = Deadline(seconds), subject.check
    located = localize(subject, _LOCALIZE_SHARE * seconds)
    path, notes = None, [located.note]
    # What is cut down is in memory several times, and nothing larger is written.
    if subject.exported.size <= MAX_BYTES:
        repro = make_repro(subject, located, seconds=deadline.left)
        path = repro_path(subject, repro)
        notes.append(repro.reason)
    node = located.node
    if node is not None:
        inside = node.module or check.block
        cause += f", first at {node.op_type}" + (f" in {inside}" if inside else "")
    found = {
        "node": node,
        "beside": located.beside,
        "source": located.source,
        "nodes": located.nodes,
        "repro": path,
    }
    note = "; ".join(filter(None, notes))
    diagnosis = Diagnosis.undecided(check, note, cause).model_copy(update=found)
    known = None
    for blame in _MAY_BE:
        blamed = diagnosis.model_copy(update={"blame": blame})
        known = known or known_fault(blamed, subject.exported, check, [subject.runtime])
    return to_message(diagnosis.model_copy(update={"known": known}))
