"""What every mapping of the manifest is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator


class Entry(BaseModel):
    """A mapping of the manifest. Validation notes in its context which mapping was read as what."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _note(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not None:
            info.context[id(value)] = cls
        return value
