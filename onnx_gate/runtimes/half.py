"""A file with 16-bit values as a device stores them: each result rounded, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.half_graph import DTYPES, limits, rounded_model
from onnx_gate.runtimes.half_ranges import Scalars, Watched
from onnx_gate.runtimes.onnxruntime import (
    WEIGHTS_FOLDER,
    OnnxRuntime,
    OnnxRuntimeSession,
    session_options,
)
from onnx_gate.runtimes.onnxruntime_errors import load_problem, refusal
from onnx_gate.runtimes.providers import CPU

HALF = "half"
FLOAT32 = "float32"
"""The option that names the nodes that stay in float32."""


@dataclass
class Range:
    """What one 16-bit result was over all runs, before it was rounded.

    ``largest`` is its largest magnitude, ``small`` the share below the least normal number where that
    was largest, ``total`` the largest sum that it divides, of a mean.
    """

    watched: Watched
    largest: float = 0.0
    small: float = 0.0
    total: float = 0.0

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return str(DTYPES[self.watched.dtype].name)

    @property
    def most(self) -> float:
        """The largest number of its dtype."""
        return float(limits(self.watched.dtype).max)

    @property
    def limit(self) -> float:
        """The magnitude from which on the dtype has infinity: half a step beyond its largest."""
        return self.most * (1 + float(limits(self.watched.dtype).eps) / 4)

    @property
    def overflows(self) -> bool:
        """Whether it was beyond what the dtype holds; where it was infinite in float32, another was."""
        return self.limit <= self.largest < math.inf


class HalfSession(OnnxRuntimeSession):
    """One loaded model; ``ranges`` grow with every run."""

    def __init__(self, session: ort.InferenceSession, measured: Sequence[Scalars]) -> None:
        super().__init__(session)
        own = len(self.outputs) - sum(len(each.names) for each in measured)
        self.outputs, self._own = self.outputs[:own], self._names[:own]
        self._measured = measured
        self.ranges = [Range(each.watched) for each in measured]

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with ONNX Runtime's own sentence."""
        try:
            answers = super().run(feeds)
        except Refusal:
            # An empty value has no largest magnitude: the model itself may run.
            every, self._names = self._names, self._own
            options = ort.RunOptions()
            options.only_execute_path_to_fetches = True
            try:
                return self._run(feeds, options)
            except Exception as error:
                raise refusal(error) from error
            finally:
                self._names = every
        seen = dict(zip(self._names, answers, strict=True))
        for each, by in zip(self.ranges, self._measured, strict=True):
            each.largest = max(each.largest, float(seen[by.largest]))  # NaN is no magnitude
            each.small = max(each.small, float(seen[by.share]))
            if by.total:
                each.total = max(each.total, float(seen[by.total]))
        return answers[: len(self._own)]


class HalfRuntime:
    """``name: half`` of a manifest, and by itself for every file with 16-bit results."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> HalfSession:
        """Load ``model``; see ``Runtime.open``."""
        try:
            proto = onnx.load(str(model), load_external_data=False)
            rounded = rounded_model(proto, tuple(spec.options.get(FLOAT32, ())))
            options = session_options(threads)
            # It folds the casts of weights; those that round are kept.
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            weights = spec.session_options.get(WEIGHTS_FOLDER, str(model.parent))
            options.add_session_config_entry(WEIGHTS_FOLDER, weights)
            session = ort.InferenceSession(
                rounded.model.SerializeToString(), options, providers=[CPU]
            )
        except Exception as error:
            problem = load_problem(error, model, ort.__version__, CPU)
            raise problem.code.error(f"{spec.label}: {problem.message}") from error
        return HalfSession(session, rounded.measured)

    def environment(self) -> dict[str, Any]:
        """Return what ONNX Runtime says of itself."""
        return OnnxRuntime().environment()
