"""What an exporter has failed with, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_gate.manifest import ModelSpec
from onnx_gate.text import shortened, without_escapes
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.source_lines import Line

_WIDTH = 300
_BOILERPLATE = (
    "Next steps:",
    "- Modify the model code",
    "- Debug `torch.export",
    "- Create an issue",
    "(Refer to the full stack trace",
    "For more information",
    "For extended logs",
    "For more debugging help",
    "For C++ stack trace",
    "If you suspect the guard",
    "Set TORCH_LOGS",
    "If you want to",
    "The following call raised this error",
    "The error above occurred when calling",
    "consider using data-dependent friendly",
    "Caused by:",
    "Specifically, we",
)


@dataclass(frozen=True)
class FailureSaid:
    """What an exception is in the gate's words, what to do, and the line where it is not its source.

    ``changes`` of the manifest are what the remedy asks for, and ``otherwise`` is what is left of it
    where they have been tried, and do not help. ``recognised``: it is known why.
    """

    message: str
    remedy: str = ""
    line: Line | None = None
    changes: tuple[tuple[str, object], ...] = ()
    otherwise: str = ""
    recognised: bool = True


@dataclass(frozen=True)
class ExportFailure:
    """An exception of an exporter, and what its traceback holds.

    ``text`` is every message of the chain, ``last`` the exception that began it, ``source`` the
    line of the user's at which it was raised, or which the exporter was translating.
    """

    text: str
    last: BaseException
    chain: tuple[BaseException, ...]
    source: Line | None
    spec: ModelSpec
    root: Path | None
    stacks: Stacks

    @property
    def exporter(self) -> str:
        """Which exporter it is."""
        return self.spec.export.exporter

    @property
    def called(self) -> str:
        """What it is called: one that a function of the user's calls has no name of its own."""
        own = ":" in self.exporter
        return f"exporter that {self.exporter} calls" if own else f"{self.exporter} exporter"

    @property
    def held(self) -> Iterator[Any]:
        """What the frames of all tracebacks hold."""
        return (value for each in self.chain for value in locals_of(each))


def locals_of(error: BaseException) -> Iterator[Any]:
    """Yield what the frames of a traceback hold: the traced graph is nowhere else."""
    frames = error.__traceback__
    while frames is not None:
        frame = frames.tb_frame
        if "/torch/" in frame.f_code.co_filename:
            yield from list(frame.f_locals.values())
        frames = frames.tb_next


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from, the last first."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )


def own_words(error: BaseException, most: int) -> str:
    """Return what an exception says in at most so many lines, without what all of them say."""
    lines: list[str] = []
    for raw in without_escapes(str(error)).splitlines():
        line = raw.rstrip()
        if lines and lines[-1].count("(") > lines[-1].count(")"):
            # A value that was printed into a sentence, over lines.
            lines[-1] = shortened(f"{lines[-1]} {line.strip()}", _WIDTH)
            continue
        if not line.strip() or line.strip().startswith(_BOILERPLATE):
            continue
        if re.match(r'\s*File ".*", line \d+', line) and "site-packages" in line:
            continue
        if len(lines) == most:
            lines[-1] += " …"
            break
        lines.append(shortened(line, _WIDTH))
    return f"{type(error).__name__}: " + "\n".join(lines)
