"""The terminal: how wide it is, whether it has colours, and a report on it.

Rich obeys NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS; what is no terminal and has no COLUMNS gets a
width of its own, because nobody can know better.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console

from onnx_gate.errors import UserError
from onnx_gate.report import terminal
from onnx_gate.report.io import find_format, to_json, write_text
from onnx_gate.report.model import Report
from onnx_gate.report.view import View


def make_console() -> Console:
    """Return what everything for a person is printed on."""
    console = Console(highlight=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(highlight=False, width=terminal.WIDTH)


def show(report: Report, view: View, detail: int = terminal.NORMAL) -> None:
    """Print a report."""
    make_console().print(terminal.renderable(report, view, detail), crop=False)


def put(report: Report, format: str, view: View, file: Path | None) -> None:
    """Print a report in a format, or write it to ``file``.

    Raises ``UserError`` for a format that is not known, and a file that cannot be written.
    """
    if format == "terminal" and file is None:
        show(report, view)
        return
    if format == "terminal":
        text = terminal.render(report, view)
    else:
        text = to_json(report) if format == "json" else find_format(format)(report)
    if file is None:
        sys.stdout.write(text)
        return
    try:
        write_text(file, text)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from error
