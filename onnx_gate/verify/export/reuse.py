"""An export of an earlier run: written down beside the graph, and taken up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from onnx_gate.errors import GateError
from onnx_gate.findings.finding import Finding
from onnx_gate.report.io import write_text
from onnx_gate.verify.context import EXPORT_NOTES
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.onnx_file import read_model


class Notes(BaseModel):
    """What an ``Exported`` says beside its graph, and what its inspection found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    exporter: str
    opset_asked: int | None
    input_names: Mapping[str, str]
    ranges: Mapping[str, tuple[int, int | None]]
    example: Mapping[str, int]
    outputs: tuple[str, ...] | None
    order: tuple[str, ...]
    numbers: tuple[int, ...]
    findings: tuple[Finding, ...]


def save_export_metadata(exported: Exported, findings: Sequence[Finding]) -> None:
    """Write down an export, so that another process can take it up without exporting."""
    notes = Notes(
        file=exported.path.name,
        exporter=exported.exporter,
        opset_asked=exported.opset_asked,
        input_names=dict(exported.input_names),
        ranges=dict(exported.ranges),
        example=dict(exported.example),
        outputs=exported.outputs,
        order=exported.order,
        numbers=exported.numbers,
        findings=tuple(findings),
    )
    write_text(exported.path.parent / EXPORT_NOTES, notes.model_dump_json())


def load_export(folder: Path) -> tuple[Exported, tuple[Finding, ...]] | None:
    """Return the export in ``folder`` and what its inspection found.

    ``None`` where there is none that can be used. torch.export's program is not kept.
    """
    try:
        notes = Notes.model_validate_json((folder / EXPORT_NOTES).read_bytes())
        path = folder / Path(notes.file).name
        proto = read_model(path, path.name)
    except (OSError, ValidationError, GateError):
        return None
    exported = Exported(
        path=path,
        exporter=notes.exporter,
        proto=proto,
        opset_asked=notes.opset_asked,
        input_names=notes.input_names,
        ranges=notes.ranges,
        example=notes.example,
        outputs=notes.outputs,
        order=notes.order,
        numbers=notes.numbers,
    )
    return exported, notes.findings


def delete_export(folder: Path) -> None:
    """Remove the files of an earlier export, which another user may have put there."""
    for path in folder.iterdir():
        if not path.is_dir():
            path.unlink()
