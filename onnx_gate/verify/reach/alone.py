"""What runs inside a worker that shows a model's decisions without an export and without a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.io import to_message
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.build import build
from onnx_gate.verify.context import Context
from onnx_gate.verify.inputs.cases import cases
from onnx_gate.verify.prepare import focus_of, prepare
from onnx_gate.verify.reach.explore import Explorer
from onnx_gate.verify.reach.watcher import Watcher


def work(payload: tuple[ModelSpec, Path], emit: Callable[[dict[str, Any]], None]) -> None:
    """Show the model's own cases to it, and those that reach further; what it decided is sent."""
    spec, workspace = payload
    try:
        decisions = _decisions(spec, workspace)
    except GateError as error:
        emit({"kind": "result", "error": error.message})
        return
    emit({"kind": "result", "decisions": decisions})


def _decisions(spec: ModelSpec, workspace: Path) -> dict[str, Any] | None:
    module = build(spec, workspace).module
    prepared = prepare(spec, Context(workspace, workspace), module)
    watcher = Watcher(Eager.of(module, spec))
    explorer = Explorer(spec, watcher)
    focus = focus_of(prepared.eager, spec, prepared.sizes)
    for case in cases(spec, prepared.sizes, workspace, focus=focus):
        with suppress(Refusal):
            watcher.run(case.arrays)
            explorer.learn(case)
    for _ in explorer.cases():
        pass
    known = explorer.account(workspace)
    return None if known is None else to_message(known)
