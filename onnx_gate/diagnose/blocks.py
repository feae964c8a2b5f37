"""Where a block of a model that is verified block by block is wrong: the first node of its piece."""

from __future__ import annotations

from typing import Any

from onnx_gate.diagnose.localize.localize import Located, localize
from onnx_gate.diagnose.subject import Subject
from onnx_gate.report.io import to_message
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.verify.blocks.wrong import Wrong


def locate(wrong: Wrong, seconds: float) -> dict[str, Any]:
    """Return the diagnosis of a stage as JSON data; it blames nobody.

    The chain of exports and runtimes that blame goes along takes the whole model.
    """
    check = wrong.check
    located = (
        Located(note="its parameters are too many to be looked into")
        if wrong.exported is None
        else _located(wrong, seconds)
    )
    node = located.node
    first = ""
    if node is not None:
        inside = node.module or check.block
        first = f", first at {node.op_type}" + (f" in {inside}" if inside else "")
    return to_message(
        Diagnosis(
            runtime=check.runtime,
            case=check.case,
            output=check.output,
            blame="undecided",
            node=node,
            beside=located.beside,
            source=located.source,
            nodes=located.nodes,
            cause=f"{wrong.place} computes something else on PyTorch's own values{first}",
            note=located.note,
        )
    )


def _located(wrong: Wrong, seconds: float) -> Located:
    assert wrong.exported is not None
    wrong.folder.mkdir(parents=True, exist_ok=True)
    subject = Subject(
        spec=wrong.spec,
        eager=wrong.eager,
        exported=wrong.exported,
        graph_inputs=wrong.graph_inputs,
        arrays=wrong.arrays,
        output=wrong.output,
        runtime=wrong.runtime,
        check=wrong.check,
        workspace=wrong.workspace,
        folder=wrong.folder,
        repro=wrong.folder,
        threads=1,
        memory=wrong.memory,
    )
    return localize(subject, seconds)
