"""The outputs of a step, in the file that the runner reads them from."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from onnx_gate.report.model import Report

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
    """Return the outputs that say how the models did: the verdict, and the models by verdict."""
    counts = report.counts
    return {
        "verdict": report.verdict,
        "passed": str(counts.passed),
        "diverged": str(counts.diverged),
        "errors": str(counts.error),
    }
