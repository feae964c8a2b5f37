"""Lines in the log of a job, none of which a runner obeys unless it is meant to."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from onnx_gate.errors import UserError
from onnx_gate.text import MAX_LINE, fenced, plain, workflow_command


def say(lines: Iterable[str]) -> None:
    """Print untrusted lines, fenced."""
    for line in fenced([plain(line, MAX_LINE, indent=True) for line in lines]):
        print(line, flush=True)


def command(line: str) -> None:
    """Print a line for the runner to obey: its caller has escaped what is in it."""
    print(line, flush=True)


def warn(message: str) -> None:
    """Print a warning annotation without a place."""
    command(workflow_command("warning", message))


def fail(message: str) -> None:
    """Print an error annotation without a place."""
    command(workflow_command("error", message))


@contextmanager
def group(title: str) -> Iterator[None]:
    """Fold what is printed inside."""
    command(workflow_command("group", title))
    try:
        yield
    finally:
        sys.stdout.flush()
        command("::endgroup::")


@contextmanager
def survived(what: str, trouble: list[str]) -> Iterator[None]:
    """Turn an exception into a line of ``trouble`` that begins with ``what``."""
    try:
        yield
    except OSError as error:
        trouble.append(f"{what}: {error.strerror or error}")
    except UserError as error:
        trouble.append(f"{what}: {error}")
    except Exception as error:
        say(traceback.format_exc().splitlines())
        trouble.append(f"{what}: onnx-gate itself failed: {type(error).__name__}")
