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

# What ends a worker wherever it is.
_IN_A_STAGE = ("signal", "timeout", "memory")

SAID = frozenset(
    {
        *("verdict", "error", "portion", "stages", "export", "findings", "checks", "runtimes"),
        *("diagnosis", "further", "precision", "headroom", "decisions", "audit", "weights"),
    }
)
"""What of a result is its worker's to say. The rest is the gate's own, whatever a worker sends of it."""

_TOLD = frozenset(
    {
        *("python", "platform", "machine", "cpu_capability", "gpu", "providers", "browser"),
        *("torch", "onnx", "numpy", "onnxruntime", "onnxruntime-web", "openvino", "ncnn", "pnnx"),
        *("opencv-python", "opencv-python-headless"),
    }
)
_WORDS, _MOST_WORDS = 200, 32


def result_of(spec: ModelSpec, outcome: Outcome, log: str, stage: str = "") -> ModelResult:
    """Return what is known of a model once its worker has ended.

    Only a worker that ended as it should has reported everything: any other end is an error,
    whatever was reported before. ``stage`` is what it was at, by its own account.
    """
    observed: dict[str, Any] = {
        "line": spec.line or None,
        "required": spec.required,
        "reference": spec.reference,
        "seconds": round(max(0.0, outcome.seconds), 3),
        "peak_memory": outcome.peak_memory or None,
    }
    said = _last_result(spec, outcome) if outcome.end == "done" else None
    if said is not None:
        error = said.error and said.error.model_copy(update={"log": log})
        heard = {name: getattr(said, name) for name in SAID}
        heard |= {"error": error, "environment": _environment(spec, outcome)}
        return ModelResult(name=spec.name, **heard, **observed)
    code = _ENDS[outcome.end]
    message = outcome.detail
    if stage and outcome.end in _IN_A_STAGE:
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


def _environment(spec: ModelSpec, outcome: Outcome) -> dict[str, str | list[str]]:
    """Return what a worker says of itself, as far as it is of what a worker may speak of."""
    said = outcome.messages[-1].get("environment")
    told = said if isinstance(said, dict) else {}
    allowed = {*_TOLD, *(runtime.name for runtime in spec.runtimes)}
    found: dict[str, str | list[str]] = {}
    for name in sorted(allowed & told.keys()):
        value = told[name]
        if isinstance(value, str | int):
            found[name] = plain(value, _WORDS)
        elif isinstance(value, list):
            found[name] = [plain(each, _WORDS) for each in value[:_MOST_WORDS]]
    return found


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
