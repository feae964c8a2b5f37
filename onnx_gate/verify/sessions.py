"""The runtimes of one model: opened together, asked one case at a time, closed together."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import Finding
from onnx_gate.known import of_error
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import ModelError, RuntimeResult
from onnx_gate.runtimes.base import Array, Refusal, Session
from onnx_gate.runtimes.onnxruntime import PREPACKING_OFF, WEIGHTS_FOLDER
from onnx_gate.verify.inputs.draw import numpy_dtype
from onnx_gate.verify.loading import UNHEARD, Loading
from onnx_gate.verify.stopwatch import Clock

_ERROR = {"kind", "code", "message", "remedy", "known"}


class Sessions(dict[str, Session]):
    """Sessions by label, open inside a ``with``.

    ``failures`` has the runtimes that cannot be judged, or not any more, with their errors; the
    others go on. ``seconds`` is what each took, and ``findings`` what each says of itself. ``weights`` is
    the folder of the file's external data where that is not beside it, which ONNX Runtime and ``half``
    alone heed. With ``few`` cases weights are not packed for ONNX Runtime's kernels, which takes longer
    than to run these, and the weights' own memory once more.
    """

    def __init__(
        self,
        path: Path,
        runtimes: Iterable[RuntimeSpec],
        threads: int,
        clock: Clock,
        weights: Path | None = None,
        loading: Loading = UNHEARD,
        *,
        few: bool = False,
    ) -> None:
        super().__init__()
        self._loading = loading
        self._path, self._runtimes, self._threads = path, tuple(runtimes), threads
        self._options = {} if weights is None else {WEIGHTS_FOLDER: str(weights)}
        self._options |= {PREPACKING_OFF: "1"} if few else {}
        self._clock = clock
        self.failures: dict[str, GateError] = {}
        self.seconds: dict[str, float] = {}
        self.findings: list[Finding] = []

    def __enter__(self) -> Sessions:
        """Open them; raises ``GateError`` where none of them can be."""
        with self._clock.of("sessions"):
            for spec in self._runtimes:
                with self.timed(spec.label):
                    options = {**spec.session_options, **self._options}
                    placed = replace(spec, session_options=options)
                    try:
                        session = self._loading.open(self._path, placed, self._threads, spec.label)
                    except GateError as error:  # by the manifest's label
                        error.message = error.message.replace(placed.label, spec.label)
                        error.data |= {"engine": spec.name, "provider": placed_on(spec)}
                        raise
                if spec.label not in self.failures:
                    self[spec.label] = session
        if self.failures and not self:
            first = next(iter(self.failures.values()))
            messages = "; ".join(error.message for error in self.failures.values())
            failed = code_of(first.code).error(messages, source=first.source, remedy=first.remedy)
            failed.data |= first.data
            raise failed from first
        return self

    def __exit__(self, *_: object) -> None:
        with self._clock.of("sessions"):
            for label, session in self.items():
                if label not in self.failures:
                    with self.timed(label):
                        self.findings += getattr(session, "findings", ())
                        session.close()

    @contextmanager
    def timed(self, label: str) -> Iterator[None]:
        """Count the time of a runtime; a ``GateError`` is its failure, and ends the work inside."""
        begin = time.perf_counter()
        try:
            yield
        except GateError as error:
            self.failures.setdefault(label, error)
        finally:
            spent = time.perf_counter() - begin
            self.seconds[label] = self.seconds.get(label, 0.0) + spent

    def ask(
        self,
        label: str,
        arrays: Mapping[str, Array],
        graph_inputs: Mapping[str, str],
        half: str | None = None,
    ) -> tuple[list[Array] | None, Refusal | None]:
        """Return what ``answers_of`` does, and nothing where the runtime has failed.

        That it lacks a kernel is said by some nodes when they are run, and is the same failure.
        """
        if label not in self.failures:
            with self._clock.of("runtime"), self.timed(label):
                answers, refused = answers_of(self[label], arrays, graph_inputs, half)
                if refused is not None and "dtypes" in refused.data:
                    raise self._lacking(label, refused)
                return answers, refused
        return None, None

    def _lacking(self, label: str, refused: Refusal) -> GateError:
        spec = next(each for each in self._runtimes if each.label == label)
        error = codes.OG202.error(f"{label}: {refused}")
        error.data |= {**refused.data, "engine": spec.name, "provider": placed_on(spec)}
        return error

    def results(self) -> tuple[RuntimeResult, ...]:
        """Return what became of each runtime, in the order of the manifest."""
        return tuple(
            RuntimeResult(
                runtime=spec.label,
                seconds=round(self.seconds.get(spec.label, 0.0), 4),
                error=_as_error(self.failures.get(spec.label)),
            )
            for spec in self._runtimes
        )


def placed_on(spec: RuntimeSpec) -> str:
    """Return the provider or device that an engine computes on, empty for the CPU."""
    place = (spec.provider or spec.device or "").removesuffix("ExecutionProvider").lower()
    return "" if place == "cpu" else place


def failure_findings(runtimes: Iterable[RuntimeResult]) -> Iterator[Finding]:
    """Yield a finding for each runtime that could not be judged beside others that were."""
    for each in runtimes:
        if each.error is not None:
            error = each.error
            yield codes.OG307.finding(
                f"{error.code}: {error.message}",
                data={
                    "runtime": each.runtime,
                    **error.model_dump(include=_ERROR, exclude_none=True),
                },
            )


def _as_error(error: GateError | None) -> ModelError | None:
    if error is None:
        return None
    return ModelError.model_validate(
        {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "remedy": error.remedy,
            "known": of_error(error),
        }
    )


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
    """Return the runtime without optimisations where the manifest leaves the level open."""
    here = [r for r in runtimes if r.engine.plain and r.processor == "cpu"]
    return here[0].plain() if here and all(r.optimization is None for r in here) else None
