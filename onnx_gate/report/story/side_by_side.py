"""Several runtimes of the same models, one row a model and one column a runtime: pure."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_gate.report.model import Check, ModelResult, Report, Verdict
from onnx_gate.report.story import summary


@dataclass(frozen=True)
class Cell:
    """One model on one runtime.

    ``check`` is the worst one. ``code`` is that of the error where the runtime could not be judged.
    """

    verdict: Verdict
    check: Check | None = None
    code: str = ""

    def __str__(self) -> str:
        """Return the share of the tolerance that was used, or what went wrong."""
        if self.verdict == "error":
            return f"error {self.code}"
        share = summary.used(self.check)
        return share if self.verdict == "pass" else f"diverged {share}".rstrip()


def runtimes(report: Report) -> tuple[str, ...]:
    """Return the runtimes of all models in their order; none where every model has one at most."""
    if all(len(model.runtimes) < 2 for model in report.models):
        return ()
    return tuple(dict.fromkeys(each.runtime for model in report.models for each in model.runtimes))


def cell(model: ModelResult, runtime: str) -> Cell | None:
    """Return what became of a model on a runtime; ``None`` where it was not to run there."""
    result = next((each for each in model.runtimes if each.runtime == runtime), None)
    if result is None:
        return None
    checks = [check for check in model.checks if check.runtime == runtime]
    own = model.model_copy(update={"checks": tuple(checks)})
    worst = summary.worst(own)
    if result.error is not None:
        return Cell("error", worst, result.error.code)
    if summary.failing(own):
        return Cell("diverged", worst)
    if not any(check.compared for check in checks):
        return Cell("error", worst, model.error.code if model.error else "")
    return Cell("pass", worst)
