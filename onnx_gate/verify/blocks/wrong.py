"""The first stage of a model at which a runtime's answer to PyTorch's own values is another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.exported import Exported


@dataclass(frozen=True)
class Wrong:
    """A check of a stage, with what it takes to run it again.

    ``place`` says which stage. ``exported`` is its piece with its weights, ``None`` where these are too
    many; ``output`` is the place of the check's output among the piece's. ``folder`` is scratch, ``repro``
    takes the reproduction. ``memory`` are the bytes of intermediate values that may be held.
    """

    place: str
    spec: ModelSpec
    eager: Eager
    exported: Exported | None
    graph_inputs: Mapping[str, str]
    arrays: Mapping[str, Array]
    output: int
    runtime: RuntimeSpec
    check: Check
    workspace: Path
    folder: Path
    repro: Path
    memory: int


# Finds the first wrong node in so many seconds; a diagnosis as JSON data.
Locate = Callable[[Wrong, float], dict[str, Any]]
