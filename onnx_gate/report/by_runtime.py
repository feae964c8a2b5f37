"""Several runtimes of a model side by side: pure, from the report's types."""

from __future__ import annotations

from collections.abc import Iterable

from onnx_gate.report import summary
from onnx_gate.report.model import ModelResult

STORED = "stored"
"""What answers of files are compared under; no runtime has given them."""
_COLUMNS = 8


def columns(models: Iterable[ModelResult]) -> list[str]:
    """Return the runtimes to show beside each other, at most eight; none where no model has two."""
    several = False
    names: dict[str, None] = {}
    for model in models:
        labels = {check.runtime: None for check in model.checks if check.runtime != STORED}
        own = dict.fromkeys(map(_engine, labels))
        several = several or len(own) > 1
        names |= own
    return list(names)[:_COLUMNS] if several else []


def cell(model: ModelResult, runtime: str) -> str:
    """Return the worst share of its tolerance that a model used on a runtime.

    ``refused`` where it has compared nothing there, empty where it was not run on it.
    """
    checks = [c for c in model.checks if not c.advice and _engine(c.runtime) == runtime]
    if not checks:
        return ""
    worst = summary.worst_of(checks)
    if worst is not None:
        return summary.used(worst) or worst.verdict
    return "refused" if any(check.refused for check in checks) else "not compared"


def _engine(label: str) -> str:
    """Return a runtime's label without its level of optimisation: of one engine all are shown as one."""
    name, bracket, options = label.partition("[")
    engine, _, rest = name.partition(":")
    provider = rest.partition(":")[0]
    return (
        f"{engine}:{provider}{bracket}{options}"
        if provider not in ("", "cpu")
        else engine + bracket + options
    )
