"""What an exporter has failed with, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_gate.manifest import ModelSpec
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.source_lines import Line


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
