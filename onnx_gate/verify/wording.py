"""What is said of a model whose reference is an ONNX file: the file is called that, not PyTorch."""

from __future__ import annotations

import re

from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import ModelResult

_PYTORCH = re.compile(r"\bPyTorch\b")


def against_file(spec: ModelSpec, result: ModelResult) -> ModelResult:
    """Return the result with the reference called by what it is, in every sentence.

    The sentences of all stations are written for a module; the two differ in this one word.
    """
    if spec.reference is None:
        return result
    diagnosis = result.diagnosis
    if diagnosis is not None:
        evidence = tuple(
            each.model_copy(
                update={"experiment": _named(each.experiment), "outcome": _named(each.outcome)}
            )
            for each in diagnosis.evidence
        )
        update = {"against": "file", "evidence": evidence, "note": _named(diagnosis.note)}
        diagnosis = diagnosis.model_copy(update=update)
    error = result.error
    if error is not None:
        error = error.model_copy(update={"message": _named(error.message)})
    return result.model_copy(
        update={
            "reference": spec.reference,
            "diagnosis": diagnosis,
            "error": error,
            "findings": tuple(
                each.model_copy(update={"message": _named(each.message)})
                for each in result.findings
            ),
            "checks": tuple(
                each.model_copy(update={"reason": _named(each.reason)}) for each in result.checks
            ),
        }
    )


def _named(text: str) -> str:
    return _PYTORCH.sub("the reference", text)
