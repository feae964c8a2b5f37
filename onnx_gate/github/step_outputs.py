"""The outputs of a step, in the file that the runner reads them from."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx_gate.report.model import Report

# An environment variable, which a step makes of it, has 128 KiB on Linux.
_MAX_LIST = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def format_output(name: str, value: str) -> str:
    """Return the line, or the lines, that give an output its value, with a newline at the end.

    Raises ``ValueError`` for a name that is none.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"not the name of an output: {name!r}")
    if "\n" not in value and "\r" not in value:
        return f"{name}={value}\n"
    delimiter = f"onnx-gate-{secrets.token_hex(16)}"
    while delimiter in value:
        delimiter = f"onnx-gate-{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def append_outputs(path: str | os.PathLike[str], outputs: Mapping[str, str]) -> None:
    """Append outputs to the runner's file; raises ``OSError`` where it is missing or closed.

    A file that is not there is not made: nobody would read it.
    """
    text = "".join(format_output(name, value) for name, value in outputs.items())
    with Path(path).open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            # An earlier writer may have left its last line open.
            text = text if file.read(1) == b"\n" else f"\n{text}"
        file.write(text.encode("utf-8", "replace"))


def outputs_of(report: Report) -> dict[str, str]:
    """Return the outputs on how the models did: the verdict, the counts, and who did not pass."""
    counts = report.counts
    failing = [model.name for model in report.models if model.verdict != "pass"]
    return {
        "verdict": report.verdict,
        "passed": str(counts.passed),
        "diverged": str(counts.diverged),
        "errors": str(counts.error),
        "failing": _short_list(failing),
    }


def _short_list(names: Sequence[str]) -> str:
    """Return names as JSON, as many as a later step can take."""
    kept, room = [], _MAX_LIST
    for name in names:
        room -= len(json.dumps(name)) + 1
        if room < 0:
            break
        kept.append(name)
    return json.dumps(kept, separators=(",", ":"))
