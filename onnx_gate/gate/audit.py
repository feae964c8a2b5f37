"""``onnx-gate audit``, between the command line and the gate."""

from __future__ import annotations

from onnx_gate.gate.deliver import verify_and_deliver
from onnx_gate.gate.run import Options
from onnx_gate.manifest import Manifest
from onnx_gate.report.model import Report


def audit_and_deliver(
    manifest: Manifest, options: Options, formats: tuple[str, ...] = ()
) -> Report:
    """Do all of ``onnx-gate audit``: verify, seed faults, write the report, print what survived.

    Raises ``UserError`` as ``verify_and_deliver`` does.
    """
    return verify_and_deliver(manifest, options, formats)
