"""Where a block of a model that is verified block by block is wrong: the first node of its piece."""

from __future__ import annotations

from typing import Any

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.known import known_fault
from onnx_gate.diagnose.localize.localize import Located, localize
from onnx_gate.diagnose.repro.write import MAX_BYTES, make_repro, repro_path
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Blame, Diagnosis
from onnx_gate.verify.subject import Subject

# As of whole models: what the search for the node has of the seconds.
_LOCALIZE_SHARE = 0.8
# Who may have made a node wrong that is so on PyTorch's own values, with optimisations or without.
_MAY_BE: tuple[Blame, ...] = ("exporter", "kernel")


def locate(place: str, check: Check, subject: Subject | None, seconds: float) -> dict[str, Any]:
    """Return the diagnosis of a stage as JSON data; it blames nobody.

    ``place`` says which stage. ``subject`` is the check on the stage's piece with its weights, ``None``
    where these are too many. The chain of exports and runtimes that blame goes along takes the whole
    model.
    """
    located, path = Located(note="its parameters are too many to be looked into"), None
    notes = []
    if subject is not None:
        subject.folder.mkdir(parents=True, exist_ok=True)
        deadline = Deadline(seconds)
        located = localize(subject, _LOCALIZE_SHARE * seconds)
        # What is cut down is in memory several times, and nothing larger is written.
        if subject.exported.size <= MAX_BYTES:
            repro = make_repro(
                subject, located.node, located.inputs, located.expected, seconds=deadline.left
            )
            path, notes = repro_path(subject, repro), [repro.reason]
    node = located.node
    first = ""
    if node is not None:
        inside = node.module or check.block
        first = f", first at {node.op_type}" + (f" in {inside}" if inside else "")
    diagnosis = Diagnosis(
        runtime=check.runtime,
        case=check.case,
        output=check.output,
        blame="undecided",
        node=node,
        beside=located.beside,
        source=located.source,
        nodes=located.nodes,
        cause=f"{place} computes something else on PyTorch's own values{first}",
        repro=path,
        note="; ".join(note for note in (located.note, *notes) if note),
    )
    known = None
    if subject is not None:
        for blame in _MAY_BE:
            blamed = diagnosis.model_copy(update={"blame": blame})
            known = known or known_fault(blamed, subject.exported, check, [subject.runtime])
    return to_message(diagnosis.model_copy(update={"known": known}))
