"""``onnx-gate audit``, between the command line and the gate."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.gate.deliver import verify_and_deliver
from onnx_gate.gate.options import Options
from onnx_gate.gate.place import place
from onnx_gate.manifest import Manifest
from onnx_gate.manifest.change import KeyChange, written
from onnx_gate.report.model import Report


def audit_and_deliver(
    manifest: Manifest, options: Options, formats: tuple[str, ...] = (), *, write: bool = False
) -> tuple[Report, tuple[str, ...]]:
    """Do all of ``onnx-gate audit``: verify, seed faults, write the report, print what survived.

    With ``write`` what catches the survivors is put into the manifest; the names of the models whose
    entries are changed are returned beside the report. Raises ``UserError`` as
    ``verify_and_deliver`` does, and where an entry cannot be changed: then none is.
    """
    before = manifest.path.read_bytes() if write else b""
    report = verify_and_deliver(manifest, options, formats)
    return report, _write(manifest.path, before, report) if write else ()


def _write(path: Path, before: bytes, report: Report) -> tuple[str, ...]:
    """Change the entries of a manifest in place, all or none."""
    text, names = before.decode(), []
    for model in report.models:
        if model.audit is not None and model.audit.changes:
            changes = [KeyChange(each.key, each.value) for each in model.audit.changes]
            text = written(text, path, model.name, changes)
            names.append(model.name)
    if not names:
        return ()
    place({}, {path: (before, text.encode())})
    return tuple(names)
