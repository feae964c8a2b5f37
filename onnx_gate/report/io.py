"""Reading and writing ``report.json``, and finding the formats it can be rendered in."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from onnx_gate.errors import UserError
from onnx_gate.plugins import plugins
from onnx_gate.report.model import Check, Report

ENTRY_POINT_GROUP = "onnx_gate.reports"
MAX_BYTES = 256 * 2**20

UNTRUSTED_BYTES = 16 * 2**20
"""Of a report that a job of somebody's pull request has uploaded: parsed, it takes 30 times as much."""


# What of a check is written in any case; the rest where it says something. Of a report of many
# models nearly all is checks, most of whose fields are empty.
_ALWAYS = ("budget", "tolerance", "metrics", "worst")
_EMPTY = {
    name: json.loads(TypeAdapter(Any).dump_json(field.default))
    for name, field in Check.model_fields.items()
    if not field.is_required() and name not in _ALWAYS
}


def to_json(report: Report) -> str:
    """Return the report as JSON text, ending in a newline."""
    message = to_message(report)
    for model in message["models"]:
        model["checks"] = [_written(check) for check in model["checks"]]
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n"


def _written(check: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in check.items() if k not in _EMPTY or v != _EMPTY[k]}


def to_message(part: BaseModel) -> dict[str, Any]:
    """Return a part of the report as JSON data, infinities as strings."""
    message: dict[str, Any] = json.loads(part.model_dump_json(by_alias=True))
    return message


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, by way of a ``.NAME.*`` beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_report(path: Path, max_bytes: int = MAX_BYTES) -> Report:
    """Read a report; raises ``UserError`` where the file is none, or larger than ``max_bytes``."""
    if os.path.isdir(path):
        raise UserError(f"{path}: no report.json in this folder")
    try:
        if path.stat().st_size > max_bytes:
            raise UserError(f"{path}: larger than {max_bytes // 2**20} MiB, which no report is")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror or error}; onnx-gate run writes a report"
        ) from error
    return parse_report(data, str(path))


def parse_report(data: bytes, name: str) -> Report:
    """Return the report that ``data`` holds; raises ``UserError``, calling it ``name``."""
    try:
        return Report.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        why = f"{field}: {first['msg']}" if field else str(first["msg"])
        raise UserError(f"{name}: not a report of this version of onnx-gate: {why}") from error


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``report.json``."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onnx-gate report",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def find_format(name: str) -> Callable[[Report], str]:
    """Return the renderer registered as ``name``; raises ``UserError`` where there is none."""
    formats = plugins(ENTRY_POINT_GROUP)
    if name not in formats.names:
        raise UserError(
            f"no format is called {name!r}; there are {', '.join(sorted(formats.names))}"
        )
    renderer: Callable[[Report], str] = formats[name].load()
    return renderer


def schema_text() -> str:
    """Return the JSON Schema of the report as text."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
