"""A manifest's mistakes as problems of a report."""

from __future__ import annotations

from onnx_gate.manifest import ManifestError
from onnx_gate.report.model import Problem


def of_manifest(error: ManifestError, file: str | None = None) -> tuple[Problem, ...]:
    """Return a problem for each mistake; ``file`` is the manifest's path in the repository."""
    return tuple(
        Problem(message=each.message, file=file, line=each.line, column=each.column, path=each.path)
        for each in error.problems
    )
