"""How serious it is that an export took something for granted about sizes: pure, once all is run."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_gate.findings.finding import Finding, Severity
from onnx_gate.report.model import Check


def weighed(finding: Finding, checks: Sequence[Check]) -> Finding:
    """Return a finding of ``inspect_sizes`` as serious as what became of its sizes makes it.

    An error where the manifest names a size for which the export does not vouch, unless PyTorch and
    the graph agree in every case of that size; a note where PyTorch itself refuses all such sizes,
    none of which was asked for. Its ``data`` has ``refused`` where PyTorch takes none of them: a branch
    that the export has decided is no matter then.
    """
    if not finding.data.get("broken"):
        return finding
    verdicts = {
        index: {c.verdict for c in checks if not c.advice and sizes.items() <= c.sizes.items()}
        for index, sizes in enumerate(finding.data["broken"])
    }
    named = [
        verdicts[index]
        for index, sizes in enumerate(finding.data["broken"])
        if sizes in finding.data["named"]
    ]
    refused = all(each == {"refused"} for each in verdicts.values())
    severity: Severity = "warning"
    if any(each and not each <= {"pass", "waived"} for each in named):
        severity = "error"
    elif not named and refused:
        severity = "note"
    data = finding.data | ({"refused": True} if refused else {})
    return finding.model_copy(update={"severity": severity, "data": data})
