"""The report of a run in which nothing could be verified."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_gate.report.model import Counts, ManifestInfo, Problem, Report, Sandbox


def failed_report(
    problems: Sequence[Problem], manifest: str, sandbox: Sandbox | None = None
) -> Report:
    """Return a report without models, of verdict ``error``, that says why."""
    return Report(
        verdict="error",
        counts=Counts(),
        manifest=ManifestInfo(path=manifest, sha256=""),
        models=(),
        problems=tuple(problems),
        sandbox=sandbox,
    )
