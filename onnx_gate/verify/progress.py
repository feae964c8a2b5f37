"""The stages of verifying one model, announced and timed, and what is known when one of them fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import ExportInfo, Stage, Weights
from onnx_gate.verify.context import BLOCK
from onnx_gate.verify.stopwatch import Clock

Emit = Callable[[dict[str, Any]], None]


class Progress:
    """The stages so far, and everything that is known when one of them fails."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.stages: list[Stage] = []
        self.findings: list[Finding] = []
        self._export: Future[ExportInfo] | None = None
        self.weights: Weights | None = None

    @property
    def export(self) -> ExportInfo | None:
        """What the report says of the file, once there is one."""
        return None if self._export is None else self._export.result()

    def exported(self, info: Callable[[], ExportInfo]) -> None:
        """Have ``info`` say it beside what follows: a file's digest takes half a second for each GiB."""
        self._export = ThreadPoolExecutor(1).submit(info)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announce a stage and take its time."""
        self._emit({"kind": "stage", "name": name})
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.took(name, time.perf_counter() - begin)

    def step(self, name: str, step: str) -> None:
        """Announce what is done in a stage."""
        self._emit({"kind": "stage", "name": name, "step": step})

    def loading(self, runtime: str) -> None:
        """Say which runtime loads the file, empty for none any more."""
        step = f"{runtime} loads the file" if runtime else ""
        self._emit({"kind": "stage", "name": "verify", "step": step, "loading": runtime})

    def block(self, key: str, value: dict[str, Any]) -> None:
        """Say what a block has come to, for later runs."""
        self._emit({"kind": BLOCK, "key": key, "value": value})

    @contextmanager
    def split(self, name: str, clock: Clock) -> Iterator[None]:
        """Announce a stage and take the times of its parts, ``clock``'s and what is left."""
        self._emit({"kind": "stage", "name": name})
        try:
            with clock.of("inputs"):
                yield
        finally:
            for part, seconds in clock.seconds.items():
                self.took(f"{name}: {part}", seconds, clock.times[part])

    def took(self, name: str, seconds: float, times: int = 1) -> None:
        """Note the seconds of a stage, and how often it was begun."""
        self.stages.append(Stage(name=name, seconds=round(seconds, 4), times=times))
