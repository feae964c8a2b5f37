"""Numbers, durations, amounts of memory, days and flags."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.values.base import mistake, text_schema, words
from onnx_gate.text import quote

_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([KMGT]i?B|B)")
_UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_LONGEST = 7 * 24 * 3600
_LEAST_MEMORY = 2**20


def _read_duration(value: Any) -> float:
    """Seconds, from a number of them or from ``90s``, ``10m``, ``1h30m``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        text = words(value, "a duration such as 90s, 10m or 1h30m, or a number of seconds")
        match = _DURATION.fullmatch(text.replace(" ", ""))
        if match is None:
            raise mistake(f"{quote(text)} is not a duration; write 90s, 10m or 1h30m")
        hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = float(hours * 3600 + minutes * 60 + rest)
    if not 0 < seconds <= _LONGEST:
        raise mistake(f"{describe(value)} is no useful duration; write more than 0s, at most 168h")
    return seconds


def _read_memory(value: Any) -> int:
    """Bytes, from a number of them or from ``8GiB``, ``512MiB``, ``8GB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        text = words(value, "an amount of memory such as 8GiB, 512MiB or 8GB")
        match = _MEMORY.fullmatch(text)
        if match is None:
            raise mistake(f"{quote(text)} is not an amount of memory; write 8GiB, 512MiB or 8GB")
        size = int(float(match[1]) * _UNITS[match[2]])
    if not _LEAST_MEMORY <= size < 2**60:
        raise mistake(f"{size} bytes is no useful limit; write it with a unit, as in 8GiB")
    return size


def _read_date(value: Any) -> datetime.date:
    """A day, ``2027-03-31``."""
    text = words(value, "a date such as 2027-03-31")
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    raise mistake(f"{quote(text)} is not a date; write year-month-day, as in 2027-03-31")


def _read_flag(value: Any) -> bool:
    """True or false, in the words of YAML 1.1 too."""
    meanings = {"yes": True, "on": True, "no": False, "off": False}
    found = meanings.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise mistake(f"expected true or false, found {describe(value)}")
    return found


Duration = Annotated[
    float,
    PlainValidator(_read_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"title": "seconds", "type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST},
                {
                    "title": "duration",
                    "type": "string",
                    "pattern": r"^([0-9]+h ?)?([0-9]+m ?)?([0-9]+s)?$",
                    "examples": ["90s", "10m", "1h30m"],
                },
            ]
        }
    ),
]
Memory = Annotated[
    int,
    PlainValidator(_read_memory),
    WithJsonSchema(
        {
            "anyOf": [
                {"title": "bytes", "type": "integer", "minimum": _LEAST_MEMORY},
                {
                    "title": "amount",
                    "type": "string",
                    "pattern": r"^[0-9]+(\.[0-9]+)? *([KMGT]i?B|B)$",
                    "examples": ["8GiB", "512MiB"],
                },
            ]
        }
    ),
]
Day = Annotated[datetime.date, PlainValidator(_read_date), text_schema("date", format="date")]
Flag = Annotated[bool, PlainValidator(_read_flag), WithJsonSchema({"type": "boolean"})]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Count = Annotated[int, Field(strict=True, ge=1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]
