"""The report as GitLab's Code Quality JSON: every issue at its line of a merge request."""

from __future__ import annotations

import json

from onnx_gate.report.model import Report
from onnx_gate.report.story.issues import issues
from onnx_gate.report.story.story import tell

_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}
_UNKNOWN = "onnx-gate.yml"


def render(report: Report) -> str:
    """Return a JSON array; what is waived is no issue, and the manifest has what is nowhere else.

    GitLab shows the description alone, so the thread of a known fault is in it.
    """
    entries = [
        {
            "description": "; ".join((issue.title, *issue.known)),
            "check_name": issue.rule,
            "fingerprint": issue.fingerprint,
            "severity": _SEVERITIES[issue.level],
            "location": {
                "path": issue.location.file if issue.location is not None else _UNKNOWN,
                "lines": {"begin": (issue.location.line if issue.location else None) or 1},
            },
        }
        for issue in issues(tell(report))
        if not issue.waived
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
