"""The decisions of models, listed without a file: each is built and called in a worker of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from onnx_gate.gate.tasks import PRELOAD_ONE
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.report.story import decisions as told
from onnx_gate.text import printed
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Outcome, Task

_WORKER = "onnx_gate.verify.reach.alone:work"


def decisions(models: Sequence[ModelSpec], workspace: Path) -> Iterator[str]:
    """Yield how many decisions of each model its cases show both ways, and the others with lines."""
    watched = [spec for spec in models if spec.model is not None]
    with tempfile.TemporaryDirectory(prefix="onnx-gate-list-") as folder:
        tasks = [
            Task(spec.name, (spec, workspace), spec.timeout, spec.memory, Path(folder) / f"{n}.log")
            for n, spec in enumerate(watched)
        ]
        outcomes = run_tasks(tasks, _WORKER, jobs=1, on_event=lambda *_: None, preload=PRELOAD_ONE)
    for spec in models:
        if spec.name not in outcomes:
            yield printed(f"{spec.name}: no PyTorch model, so nothing to watch")
        else:
            first, *rest = map(printed, _lines(spec.name, outcomes[spec.name]))
            yield first
            yield from (f"  {line}" for line in rest)


def _lines(name: str, outcome: Outcome) -> Iterator[str]:
    message = outcome.messages[-1] if outcome.messages else {"error": outcome.detail or outcome.end}
    if "error" in message:
        yield f"{name}: {message['error']}"
        return
    try:
        known = Decisions.model_validate(message["decisions"]) if message["decisions"] else None
    except ValidationError:
        yield f"{name}: the worker's answer is no answer"
        return
    if known is None or not known.of:
        yield f"{name}: no decisions that can be watched"
        return
    yield f"{name}: {told.counted(known)} ({known.before} by its own suites)"
    for each in known.never:
        yield f"{told.where(each)}: {each.operator}, {told.what(each)}"
