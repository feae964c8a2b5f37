"""Putting remedies that held into the user's files: all of them, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.gate.place import place
from onnx_gate.report.model import Report
from onnx_gate.report.model.remedy import LineEdit
from onnx_gate.text import quote


def fix(report: Report, workspace: Path, output: Path) -> tuple[str, ...]:
    """Write the first remedy that held of each model, and return a line for each file written.

    ``output`` is the report's folder, which has the files that were exported anew. Raises
    ``UserError`` where a file is no longer the one that the remedy was tried with, where two
    remedies are of the same lines, and where one cannot be written: then none is.
    """
    edits: dict[str, dict[LineEdit, None]] = {}
    made: dict[str, Path] = {}
    digests: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for model in report.models:
        held = model.remedies.held if model.remedies is not None else ()
        first = next((each for each in held if each.edits or each.made), None)
        if first is None:
            continue
        digests |= first.files
        for edit in first.edits:
            edits.setdefault(edit.file, {})[edit] = None
        if first.file is not None and first.made is not None:
            made[first.file] = output / first.made
        for name in first.files:
            names.setdefault(name, []).append(model.name)
    changed: dict[Path, tuple[bytes, bytes]] = {}
    for name, digest in digests.items():
        path = workspace / name
        try:
            before = path.read_bytes()
            if hashlib.sha256(before).hexdigest() != digest:
                raise UserError(f"{path} has changed since the remedy was tried; run again")
            if name in made:
                changed[path] = before, made[name].read_bytes()
            else:
                changed[path] = before, _edited(before.decode(), edits[name], path).encode()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
    place({}, changed)
    return tuple(
        f"{workspace / name}: written for {', '.join(map(quote, of))}" for name, of in names.items()
    )


def _edited(text: str, edits: Iterable[LineEdit], path: Path) -> str:
    lines = text.split("\n")
    below = len(lines) + 1
    for edit in sorted(edits, key=lambda each: (-each.line, -len(each.old))):
        end = edit.line - 1 + len(edit.old)
        if end >= below or tuple(lines[edit.line - 1 : end]) != edit.old:
            raise UserError(
                f"{path}:{edit.line}: two remedies change these lines; put in one model's with --model"
            )
        lines[edit.line - 1 : end] = edit.new
        below = edit.line
    return "\n".join(lines)
