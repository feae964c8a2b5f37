"""What a diagnosis is about: one diverged check, and everything needed to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx_gate.manifest import ModelSpec, RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.export import Exported
from onnx_gate.verify.judge.scale import Kinds


@dataclass(frozen=True)
class Subject:
    """A diverged check.

    ``arrays`` are the case's inputs by the manifest's names, ``graph_inputs`` maps these to the
    graph's. ``output`` is the diverged output's place, in PyTorch's flat outputs as in the
    graph's. ``folder`` is scratch, ``repro`` takes the reproduction. ``memory`` is how many bytes
    of intermediate values may be held at a time. ``kinds`` is what the output was over the cases,
    which its errors are taken on the scale of.
    """

    spec: ModelSpec
    eager: Eager
    exported: Exported
    graph_inputs: Mapping[str, str]
    arrays: Mapping[str, Array]
    output: int
    runtime: RuntimeSpec
    check: Check
    workspace: Path
    folder: Path
    repro: Path
    threads: int
    memory: int
    kinds: Kinds = field(default_factory=Kinds)
