"""A report within its limit: no model's result takes the room of another's.

What is too large is taken from the largest result first, so that a result is lost only where it is
itself among the largest, however many models try to crowd out the others.
"""

from __future__ import annotations

from onnx_gate.findings import codes
from onnx_gate.report.io import to_json
from onnx_gate.report.join.verdict import count, worst_verdict
from onnx_gate.report.model import ModelError, ModelResult, Report


def fitted(report: Report, most: int) -> Report:
    """Return the report with errors in place of its largest results, until it has ``most`` bytes.

    The rest of the report is the gate's own, and is kept whatever its size.
    """
    size = len(to_json(report).encode())
    if size <= most:
        return report
    alone = report.model_copy(update={"models": ()})
    sizes = [
        len(to_json(alone.model_copy(update={"models": (model,)})).encode())
        for model in report.models
    ]
    models = list(report.models)
    for index in sorted(range(len(models)), key=lambda i: -sizes[i]):
        if size <= most:
            break
        models[index] = _too_large(models[index], sizes[index], most)
        size -= sizes[index]
    lost = [model.verdict for model in models if model.required and model.verdict == "error"]
    return report.model_copy(
        update={
            "models": tuple(models),
            "counts": count(models),
            "verdict": worst_verdict([report.verdict, *lost]),
        }
    )


def _too_large(model: ModelResult, size: int, most: int) -> ModelResult:
    message = (
        f"its result has {size / 2**20:.3g} MiB, and a report of all models {most / 2**20:.3g} at "
        "most; name fewer cases or sizes for it, or divide the manifest"
    )
    log = model.error.log if model.error is not None else None
    return ModelResult(
        name=model.name,
        line=model.line,
        verdict="error",
        required=model.required,
        seconds=model.seconds,
        error=ModelError(
            kind=codes.OG504.kinds[0], code=codes.OG504.code, message=message, log=log
        ),
    )
