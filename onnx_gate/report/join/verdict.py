"""What the verdicts of models come to: pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from onnx_gate.report.model import Counts, ModelResult, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""From the best to the worst: of several verdicts, the worst is that of all."""


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of all; of none it is a pass."""
    return max(verdicts, key=VERDICTS.index, default="pass")


def overall(models: Sequence[ModelResult]) -> Verdict:
    """Return the verdict of a run: of its required models; without any model it is an error."""
    if not models:
        return "error"
    return worst_verdict(model.verdict for model in models if model.required)


def count(models: Sequence[ModelResult]) -> Counts:
    """Return how many models there are of each verdict."""
    verdicts = [model.verdict for model in models]
    return Counts.model_validate({verdict: verdicts.count(verdict) for verdict in VERDICTS})
