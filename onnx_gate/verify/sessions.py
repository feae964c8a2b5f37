"""The runtimes of one model: opened together, asked one case at a time, closed together."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, Session, find_runtime
from onnx_gate.verify.inputs.draw import numpy_dtype
from onnx_gate.verify.stopwatch import Clock


class Sessions(dict[str, Session]):
    """Sessions by label, open inside a ``with``."""

    def __init__(
        self, path: Path, runtimes: Iterable[RuntimeSpec], threads: int, clock: Clock
    ) -> None:
        super().__init__()
        self._path, self._runtimes, self._threads = path, tuple(runtimes), threads
        self._clock = clock

    def __enter__(self) -> Sessions:
        with self._clock.of("sessions"):
            for spec in self._runtimes:
                self[spec.label] = find_runtime(spec.name).open(self._path, spec, self._threads)
        return self

    def __exit__(self, *_: object) -> None:
        with self._clock.of("sessions"):
            for session in self.values():
                session.close()


def answers_of(
    session: Session,
    arrays: Mapping[str, Array],
    graph_inputs: Mapping[str, str],
    half: str | None = None,
) -> tuple[list[Array] | None, Refusal | None]:
    """Return the runtime's outputs, or ``None`` and its refusal.

    Inputs that the graph takes in the dtype ``half`` are rounded to it.
    """
    feeds = {graph: arrays[name].copy() for name, graph in graph_inputs.items()}
    if half is not None:
        feeds = rounded(feeds, {v.name for v in session.inputs if v.dtype == half}, half)
    try:
        return [np.asarray(output) for output in session.run(feeds)], None
    except Refusal as error:
        return None, error


def rounded(feeds: Mapping[str, Array], names: Container[str], half: str) -> dict[str, Array]:
    """Return the inputs with those of ``names`` in the dtype ``half``, where they are wider."""
    with np.errstate(over="ignore"):
        return {
            name: array.astype(numpy_dtype(half))
            if name in names and array.dtype in (np.float32, np.float64)
            else array
            for name, array in feeds.items()
        }


def without_optimisations(runtimes: Iterable[RuntimeSpec]) -> RuntimeSpec | None:
    """Return ONNX Runtime without optimisations where the manifest leaves the level open."""
    plain = [r for r in runtimes if r.name == "onnxruntime" and r.provider in (None, "cpu")]
    if not plain or any(r.optimization is not None for r in plain):
        return None
    return replace(plain[0], optimization="off")
