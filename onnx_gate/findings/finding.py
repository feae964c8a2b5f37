"""One finding, and the words for how serious it is."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

GUESS = "guess"
"""In the data of a finding on what may be behind a divergence, and was not seen to be."""

Severity = Literal["error", "warning", "note"]
ErrorKind = Literal[
    "build", "export", "inspect", "runtime", "unverified", "crashed", "timeout", "memory"
]


class Placed(Protocol):
    """What has a place of the user's: a file, and mostly a line of it."""

    @property
    def file(self) -> str | None:
        """The file, relative to the manifest's folder."""

    @property
    def line(self) -> int | None:
        """The line, where it is one of them."""


class Frozen(BaseModel):
    """What a report is made of: never changed, and read without what a later version has added."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_inf_nan="strings", populate_by_name=True
    )


class Finding(Frozen):
    """Something worth saying about a model, with the code that ``onnx-gate explain`` knows.

    ``data`` holds as values what the message says in words, where something else needs it.
    """

    code: str = Field(pattern=r"^OG\d{3}$")
    severity: Severity
    message: str
    file: str | None = None
    line: int | None = None
    data: dict[str, Any] = {}

    def __hash__(self) -> int:
        return hash((self.code, self.severity, self.message, self.file, self.line))
