"""Divergences that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from onnx_gate.manifest.values.amounts import Day, NotNegative
from onnx_gate.manifest.values.base import Maybe, note
from onnx_gate.manifest.values.names import Words


@dataclass(frozen=True)
class Waiver:
    """A known divergence that does not fail the check until a day."""

    __pydantic_config__ = ConfigDict(title="Waiver", extra="forbid")

    check: Annotated[
        Words, Field(description="A glob over the ids of the cases, such as `edges/large/*`.")
    ]
    until: Annotated[Day, Field(description="The last day on which the waiver holds.")]
    reason: Annotated[Words, Field(description="Why it is accepted, and where it is tracked.")]
    ceiling: Annotated[
        Maybe[NotNegative],
        Field(
            description="The largest error that it forgives, relative to each element and to what "
            "is usual of its kind (`metrics.scaled` in `report.json`); of `cosine`, `top1` "
            "and `topk` what is lacking to 1, of `snr_db` the noise over the signal.",
            json_schema_extra={"$comment": "default: any"},
        ),
    ] = None


WaiverChoice = Annotated[Waiver, note(Waiver)]
