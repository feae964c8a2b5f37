"""What a model's operators decide, and what of it the cases have shown."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model.diagnosis import Source

# A report lists so many; with more of them it is the inputs as a whole that show nothing.
MOST_LISTED = 100

Side = Literal[
    "below",
    "above",
    "equal",
    "different",
    "true",
    "false",
    "both",
    "neither",
    "first",
    "second",
    "even",
    "odd",
    "within",
    "beyond",
]


class Decision(Frozen):
    """A decision of an operator of which a side was never shown.

    ``limit`` is the number that the operator compares with, or how many rows its table has, null
    where it is no number. ``never`` are the sides, ``read`` the rows of a table that were read.
    """

    module: str
    operator: str
    limit: float | None = Field(default=None, allow_inf_nan=False)
    never: tuple[Side, ...] = ()
    read: int | None = None
    source: Source | None = None


class Decisions(Frozen):
    """How many decisions were shown both ways.

    ``seen`` of ``of`` in all cases that count, ``before`` of them in the model's own suites alone.
    ``compared`` are others whose unseen sides were compared at their operators. ``never`` has what
    is left, the first hundred. What no input can change is no decision.
    """

    seen: int
    of: int
    before: int
    compared: int = 0
    never: tuple[Decision, ...] = ()

    @property
    def share(self) -> float:
        """The share that inputs showed both ways, or that was compared at its operator."""
        return (self.seen + self.compared) / self.of if self.of else 1.0
