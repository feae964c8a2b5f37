"""An exported graph as faults see it: flat, with what the manifest says of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnx_gate.graph.constants import Constants
from onnx_gate.graph.graph import Graph
from onnx_gate.graph.walk import Dims, constants, shapes
from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array


@dataclass(frozen=True)
class GraphInput:
    """An input of the graph: its name there, and what the manifest says of it."""

    name: str
    declared: str
    spec: InputSpec


class FlatGraph(Graph):
    """A flattened model whose large constants lie in ``folder`` beside it; nothing here changes it.

    ``sizes`` has one tested size of every dynamic dimension.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path,
        fed: Sequence[GraphInput] = (),
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        stored = Constants(constants(model), folder)
        super().__init__(model.graph, stored, model.opset_import, model.ir_version, listed=True)
        self.model, self.fed, self.sizes = model, tuple(fed), dict(sizes or {})
        self._shapes = shapes(model)

    def is_stored(self, name: str) -> bool:
        """Return whether a value is in the file."""
        return name in self.constants

    def is_float(self, name: str) -> bool:
        """Return whether a value is a stored floating-point one."""
        return self.constants.is_float(name)

    def is_computed(self, name: str) -> bool:
        """Return whether a node makes a value from others."""
        return name in self.producer and name not in self.constants

    def dims(self, name: str) -> Dims | None:
        """Return the shape of a value, ``None`` where the file does not say it."""
        return self.constants.dims(name) if self.is_stored(name) else self._shapes.get(name)

    def count(self, name: str) -> int:
        """Return the number of elements of a constant."""
        return self.constants.count(name)

    def scalar(self, name: str) -> float | None:
        """Return the only element of a stored floating-point value, ``None`` of any other value."""
        if not self.is_float(name) or self.count(name) != 1:
            return None
        return float(self.array(name).reshape(-1)[0].astype(np.float64))

    def array(self, name: str) -> Array:
        """Return a copy of a constant."""
        return np.array(self.constants.array(name))
