"""Where an exception came from: always in the model's log, and sent to the gate for whoever asks."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

KIND = "traceback"
_MOST_CHARACTERS = 64_000


def report(error: BaseException, emit: Callable[[dict[str, Any]], None]) -> str:
    """Print the traceback of ``error`` into the log, send it, and return it.

    An error that stands for another one is traced to that one, whether it says so or not: the
    sentence that a user reads hides the context that a developer looks for.
    """
    text = write(error)
    with suppress(Exception):
        emit({"kind": KIND, "text": text})
    return text


def write(error: BaseException) -> str:
    """Print the traceback of ``error`` into the log alone, and return it."""
    origin = error.__cause__ or error.__context__ or error
    text = "".join(traceback.format_exception(origin))[-_MOST_CHARACTERS:]
    with suppress(Exception):
        print(text, file=sys.stderr, flush=True)
    return text
