"""Why nothing could be verified, as a report: a manifest's mistakes, wrong inputs, a lost process."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_gate.manifest import ManifestError
from onnx_gate.report.model import Counts, ManifestInfo, Problem, Report, Run, Sandbox, Shard


def of_manifest(error: ManifestError) -> tuple[Problem, ...]:
    """Return a problem for each mistake."""
    return tuple(
        Problem(message=each.message, line=each.line, column=each.column, path=each.path)
        for each in error.problems
    )


def failed_report(
    problems: Sequence[Problem],
    manifest: str,
    sandbox: Sandbox | None = None,
    *,
    run: Run | None = None,
    shard: Shard | None = None,
) -> Report:
    """Return a report without models, of verdict ``error``, that says why.

    With ``run`` and ``shard`` it takes its part's place where the parts are joined.
    """
    return Report(
        verdict="error",
        counts=Counts(),
        manifest=ManifestInfo(path=manifest, sha256=""),
        models=(),
        problems=tuple(problems),
        sandbox=sandbox,
        run=run,
        shard=shard,
    )


def with_problem(report: Report, message: str) -> Report:
    """Return the report as an error, for one reason more than its own."""
    problems = (*report.problems, Problem(message=message))
    return report.model_copy(update={"verdict": "error", "problems": problems})
