"""What a worker is to do, and how it ended: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

End = Literal["done", "exit", "signal", "timeout", "memory", "processes", "protocol", "lost"]


@dataclass(frozen=True)
class Task:
    """What one worker is to do.

    ``payload`` is pickled for the worker. ``timeout`` is in seconds from the worker's start,
    ``memory`` in bytes of resident memory of the worker and all its descendants together (pages
    that they share count for each; None: 85 % of what is available at the start of the run).
    ``processor`` is a limit on their seconds of processor time together (None: no limit).
    ``log`` is the file for everything printed; what lay there is replaced. What is expected of
    it (None: unknown) decides on order and company only: ``expected_seconds`` of life, and
    ``expected_memory`` in bytes, counted as for ``memory``.
    """

    name: str
    payload: object
    timeout: float
    memory: int | None
    log: Path
    expected_seconds: float | None = None
    expected_memory: int | None = None
    processor: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    ``messages`` are the complete messages of kind ``result``, in order, whatever the end was.
    ``end`` is ``done`` only where the function returned, the process then ended with status 0,
    and nothing but well-formed messages was received. ``detail`` is one sentence for a person,
    ``tail`` the last lines of the log (cleaned, at most 20 of at most 500 characters), ``seconds``
    the life of the worker, ``peak_memory`` the most bytes it was seen to use.
    """

    messages: tuple[dict[str, Any], ...]
    end: End
    detail: str
    tail: tuple[str, ...]
    seconds: float
    peak_memory: int
