"""A model in ONNX Runtime as it is written: without optimisations, on any values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_gate.runtimes.base import Array, Refusal, contiguous
from onnx_gate.runtimes.onnxruntime import WEIGHTS_FOLDER, OnnxRuntimeSession
from onnx_gate.runtimes.providers import CPU

# A tensor, a sequence of tensors, or nothing where a node would not run.
Value = Any


class PlainSession:
    """A model in memory with its weights, or a file; raises ``Refusal`` where it does not load.

    ``weights`` are put in the place of those of their names. What is external lies in ``folder``.
    """

    def __init__(
        self,
        model: onnx.ModelProto | Path,
        threads: int = 1,
        provider: tuple[str, Mapping[str, str]] = (CPU, {}),
        weights: Mapping[str, Array] | None = None,
        folder: Path | None = None,
    ) -> None:
        options = ort.SessionOptions()
        if folder is not None:
            options.add_session_config_entry(WEIGHTS_FOLDER, str(folder))
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        name, given = provider
        source = str(model) if isinstance(model, Path) else model.SerializeToString()
        # They have to live as long as the session does.
        self._held = {
            n: ort.OrtValue.ortvalue_from_numpy(np.array(a, order="C"))
            for n, a in (weights or {}).items()
        }
        try:
            for weight, value in self._held.items():
                options.add_initializer(weight, value)
            self._session = ort.InferenceSession(source, options, providers=[(name, dict(given))])
        except Exception as error:
            raise Refusal(str(error)) from error
        self._inputs = {value.name for value in self._session.get_inputs()}
        sides = (*self._session.get_inputs(), *self._session.get_outputs())
        self._bfloat16 = any(side.type == "tensor(bfloat16)" for side in sides)

    def run(self, values: Mapping[str, Value]) -> Sequence[Value]:
        """Run once on those of the values that it takes; raises ``Refusal``."""
        feeds = {name: value for name, value in values.items() if name in self._inputs}
        if self._bfloat16:
            return OnnxRuntimeSession(self._session).run(feeds)
        feeds = {
            n: v if isinstance(v, list) else contiguous(np.asarray(v)) for n, v in feeds.items()
        }
        try:
            outputs: Sequence[Value] = self._session.run(None, feeds)
        except Exception as error:
            raise Refusal(str(error)) from error
        return [o if isinstance(o, list | dict) or o is None else np.asarray(o) for o in outputs]
