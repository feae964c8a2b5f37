"""The terminal: how wide it is, whether it has colours, and a report on it.

Rich obeys NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS; what is no terminal and has no COLUMNS gets a
width of its own, because nobody can know better.
"""

from __future__ import annotations

import os

from rich.console import Console

from onnx_gate.report import terminal
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
