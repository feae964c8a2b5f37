"""How much of a model its cases have to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from onnx_gate.manifest.values.amounts import Share
from onnx_gate.manifest.values.base import note


@dataclass(frozen=True)
class CoverageSpec:
    """What share of a model has to be seen, or it is not verified."""

    __pydantic_config__ = ConfigDict(title="Coverage", extra="forbid")

    decisions: Annotated[
        Share,
        Field(
            description="The share of decisions (a clamp's limit, a comparison, the rows of a table) "
            "that inputs have shown both ways, or that were compared at their operators."
        ),
    ]


Coverage = Annotated[CoverageSpec, note(CoverageSpec)]
