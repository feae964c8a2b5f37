"""How a file is loaded into an engine: announced, so that it is known what takes the process down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Session
from onnx_gate.runtimes.open import open_session


class LoadErrors(Protocol):
    """Says more of engines that do not load a file, where the module's code is beside it."""

    def place(self, error: GateError, path: Path) -> None:
        """Give an error of a node the line that it was made of."""
        ...

    def crashed(self, path: Path, spec: RuntimeSpec, label: str, ending: str) -> GateError:
        """Return the error of an engine that takes its process down."""
        ...


@dataclass(frozen=True)
class Loading:
    """Loads files. ``announce`` is told which engine is at it, and that it no longer is.

    ``crashes`` has the engines whose load has taken an earlier process of the model down, each with how
    that ended: they are not asked again, and ``errors`` says of them what loads.
    """

    announce: Callable[[str], None] = lambda _: None
    crashes: Mapping[str, str] = field(default_factory=dict)
    errors: LoadErrors | None = None

    def open(self, path: Path, spec: RuntimeSpec, threads: int, label: str) -> Session:
        """Load a file into the engine that the manifest calls ``label``; raises ``GateError``."""
        if self.errors is not None and label in self.crashes:
            raise self.errors.crashed(path, spec, label, self.crashes[label])
        self.announce(label)
        try:
            return open_session(path, spec, threads)
        except GateError as error:
            if self.errors is not None:
                self.errors.place(error, path)
            raise
        finally:
            self.announce("")


# With nobody to tell.
UNHEARD = Loading()
