"""Where a report is printed: how wide it is there, whether there are colours, whether anybody reads on.

Rich obeys NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS; what is no terminal and has no COLUMNS gets a
width of its own, because nobody can know better.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from rich.console import Console

from onnx_gate.errors import unwritten
from onnx_gate.report.io import find_format, write_text
from onnx_gate.report.model import Report
from onnx_gate.report.render import terminal
from onnx_gate.report.story.view import View
from onnx_gate.text import without_commands


class _Console(Console):
    """A console that goes on in silence where nobody reads any more: ``| head`` ends no run."""

    def on_broken_pipe(self) -> None:
        """Print nothing from here on."""
        self.quiet = True
        _stop_writing(self.file)


def make_console(stderr: bool = False) -> Console:
    """Return what everything for a person is printed on."""
    console = _Console(highlight=False, stderr=stderr)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return _Console(highlight=False, stderr=stderr, width=terminal.WIDTH)


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
    text = find_format(format)(report.located(view.output))
    if file is None:
        put_text(text, format)
        return
    try:
        write_text(file, text)
    except OSError as error:
        raise unwritten(file, error, "name another file with --output") from error


def put_text(text: str, format: str) -> None:
    """Print what a format has made, as UTF-8 whatever the terminal's language is.

    On GitHub the log's lines are obeyed, and only those of the format ``github`` are meant to be.
    """
    if on_github() and format != "github":
        text = without_commands(text)
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.flush()
    except BrokenPipeError:
        _stop_writing(sys.stdout)


def on_github() -> bool:
    """Return whether a GitHub runner reads what is printed."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _stop_writing(file: IO[str]) -> None:
    """Have what is still to be written, at the end at the latest, go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
