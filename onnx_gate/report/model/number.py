"""A float of ``report.json``: what JSON cannot hold is ``"Infinity"``, ``"-Infinity"`` or ``"NaN"``."""

from __future__ import annotations

from typing import Annotated

from pydantic import WithJsonSchema

Number = Annotated[
    float,
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity", "NaN"]}]}),
]
