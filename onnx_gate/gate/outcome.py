"""What is known of a model once its worker has ended, however it did."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import ModelError, ModelResult
from onnx_gate.text import plain
from onnx_gate.workers.task import Outcome

_ENDS: dict[str, codes.Code] = {
    "exit": codes.OG501,
    "signal": codes.OG501,
    "lost": codes.OG501,
    "protocol": codes.OG504,
    "done": codes.OG504,
    "timeout": codes.OG502,
    "memory": codes.OG503,
    "processes": codes.OG507,
}


def result_of(spec: ModelSpec, outcome: Outcome, log: str, stage: str = "") -> ModelResult:
    """Return what is known of a model once its worker has ended.

    Only a worker that ended as it should has reported everything: any other end is an error,
    whatever was reported before. ``stage`` is what it was at, by its own account.
    """
    observed: dict[str, Any] = {
        "line": spec.line or None,
        "required": spec.required,
        "seconds": round(max(0.0, outcome.seconds), 3),
        "peak_memory": outcome.peak_memory or None,
    }
    result = _last_result(spec, outcome)
    if result is not None and outcome.end == "done":
        if result.error is not None:
            error = result.error.model_copy(update={"log": log})
            result = result.model_copy(update={"error": error})
        return result.model_copy(update=observed)
    code = _ENDS[outcome.end]
    message = outcome.detail
    if stage and outcome.end == "signal":
        message += f" in the stage {plain(stage)!r}"
    if outcome.end == "done":
        message = "the worker ended without a complete result"
    return ModelResult(
        name=spec.name,
        verdict="error",
        error=ModelError(
            kind=code.kinds[0], code=code.code, message=message, log=log, tail=outcome.tail
        ),
        **observed,
    )


def _last_result(spec: ModelSpec, outcome: Outcome) -> ModelResult | None:
    for message in reversed(outcome.messages):
        try:
            result = ModelResult.model_validate(message.get("model"))
        except ValidationError:
            return None
        return result if result.name == spec.name else None
    return None


def not_started(error: OSError) -> Outcome:
    """Return the end of a worker whose folders cannot be made."""
    detail = f"its folders could not be made: {error.strerror or error}"
    return Outcome((), "lost", detail, (), 0.0, 0)


def unverified(code: codes.Code, message: str, remedy: str = "") -> ModelError:
    """Return the error of a model that nothing is known of."""
    return ModelError(kind=code.kinds[0], code=code.code, message=message, remedy=remedy)
