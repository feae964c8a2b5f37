"""The audit inside a model's worker: whether there is one, its time, and what its score means."""

from __future__ import annotations

import shutil
import time

from onnx_gate.audit.audit import Emit, audit
from onnx_gate.deadline import Deadline
from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import ModelError, ModelResult
from onnx_gate.report.model.audit import Audit
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import AUDIT_TIMES, AuditRequest, Context
from onnx_gate.verify.export.exported import Exported
from onnx_gate.workers import child

FOLDER = "audit"
# What is left of the time when no further fault is tried: the report has to be sent.
_LEFT = 0.1
# With what catches the survivors an audit takes at most as many times as long as the model itself.
_TIMES = 2.0


def audited(
    spec: ModelSpec,
    context: Context,
    result: ModelResult,
    checker: Checker,
    exported: Exported,
    emit: Emit,
) -> ModelResult:
    """Add the audit to the result of a model, and what too low a score makes of it."""
    request = context.audit
    assert request is not None
    if result.verdict != "pass":
        note = f"not audited: the model does not pass ({result.verdict}); what is wrong comes first"
        return result.model_copy(update={"audit": Audit(seed=request.seed, note=note)})
    folder = context.folder / FOLDER
    spent = time.perf_counter() - child.born if child.born else 0.0
    deadline = Deadline((1 - _LEFT) * (AUDIT_TIMES * spec.timeout - spent))
    try:
        made = audit(checker, exported, request, folder, emit, deadline, Deadline(_TIMES * spent))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return weighed(result.model_copy(update={"audit": made}), request)


def weighed(result: ModelResult, request: AuditRequest) -> ModelResult:
    """Return the result with the verdict that the score asks for; no score is too low a one; pure."""
    if request.min_score is None or result.audit is None or result.verdict != "pass":
        return result
    score = result.audit.score
    if score is not None and score.of and score.caught >= request.min_score * score.of:
        return result
    asked = f"--min-score asks for {request.min_score:.0%}"
    if score is None or not score.of:
        why = result.audit.note or "no fault of the catalogue fits this graph"
        message = f"the audit has no score, and {asked}: {why}"
    else:
        message = (
            f"the gate catches {score.caught} of {score.of} of the faults that were seeded "
            f"({score.caught / score.of:.0%}), and {asked}: the survivors say what would catch them"
        )
    error = ModelError(kind="unverified", code=codes.OG603.code, message=message)
    return result.model_copy(update={"verdict": "error", "error": error})
