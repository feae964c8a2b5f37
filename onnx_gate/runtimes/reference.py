"""ONNX's own reference evaluator: slow, and the semantics as the specification has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.runtimes.declared import check_feeds, declared


class ReferenceRuntime:
    """``name: reference`` of a manifest."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> ReferenceSession:
        """Load ``model``; see ``Runtime.open``. ``threads`` has no meaning here."""
        try:
            proto = onnx.load(str(model))
            return ReferenceSession(proto, ReferenceEvaluator(proto))
        except Exception as error:
            raise codes.OG303.error(
                f"{spec.label}: the model does not load: {first_line(error)}"
            ) from error

    def environment(self) -> dict[str, Any]:
        """Return the version of onnx, whose evaluator this is."""
        return {"onnx": onnx.__version__}


class ReferenceSession:
    """One loaded model."""

    def __init__(self, proto: onnx.ModelProto, evaluator: ReferenceEvaluator) -> None:
        self._evaluator: ReferenceEvaluator | None = evaluator
        self.inputs, self.outputs = declared(proto.graph)
        # A name that two sizes share binds no engine; a number does, and the evaluator reads neither.
        self._fixed = [
            replace(
                each, shape=tuple(size if isinstance(size, int) else None for size in each.shape)
            )
            for each in self.inputs
        ]

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with the evaluator's own sentence."""
        assert self._evaluator is not None
        check_feeds(self._fixed, feeds)
        try:
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(None, dict(feeds))
        except Exception as error:
            raise Refusal(f"{type(error).__name__}: {first_line(error)}") from error
        return [np.asarray(output) for output in outputs]

    def close(self) -> None:
        """Drop the model."""
        self._evaluator = None
