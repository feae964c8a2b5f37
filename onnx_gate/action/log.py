"""Lines in the log of a job, none of which a runner obeys unless it is meant to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from onnx_gate.gate.progress import fenced
from onnx_gate.text import plain


def say(lines: Iterable[str]) -> None:
    """Print untrusted lines, fenced."""
    for line in fenced([plain(line) for line in lines]):
        print(line, flush=True)


def command(line: str) -> None:
    """Print a line for the runner to obey: its caller has escaped what is in it."""
    print(line, flush=True)


def warn(message: str) -> None:
    """Print a warning annotation without a place."""
    command(f"::warning::{escape(message)}")


def fail(message: str) -> None:
    """Print an error annotation without a place."""
    command(f"::error::{escape(message)}")


def escape(message: str) -> str:
    """Return a command's message, escaped as the runner's documentation asks."""
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped[:4000]


@contextmanager
def group(title: str) -> Iterator[None]:
    """Fold what is printed inside."""
    command(f"::group::{escape(title)}")
    try:
        yield
    finally:
        sys.stdout.flush()
        command("::endgroup::")
