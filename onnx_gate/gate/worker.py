"""What runs inside a worker process: one model, from its entry to its result."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch

import onnx_gate
from onnx_gate.cache.reads import AccessRecorder
from onnx_gate.deadline import Deadline
from onnx_gate.findings import codes
from onnx_gate.graph.constants import external_files
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.paths import is_program
from onnx_gate.report.io import to_message
from onnx_gate.report.model import ModelError, ModelResult
from onnx_gate.runtimes import isolated
from onnx_gate.runtimes.environment import environment
from onnx_gate.text import last_lines, plain
from onnx_gate.verify.carry import carry
from onnx_gate.verify.checkpoint_files import checkpoint_files
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import BLOCK, Context
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.source_lines import at, of_error, own_source
from onnx_gate.verify.verify import verify
from onnx_gate.workers import child, tracebacks
from onnx_gate.workers.worker_log import TAIL_LINES

_RESULT = "result"
# Of a model's time, what PyTorch has to say all that another machine may ask.
_CARRYING = 0.5


def work(payload: tuple[ModelSpec, Context], emit: Callable[[dict[str, Any]], None]) -> None:
    """Verify one model; the message of kind ``result`` has all of the result."""
    spec, context = payload
    if context.confinement is not None:
        context.confinement.enter()
    if context.record:
        recorder = AccessRecorder()
        recorder.start()
        if spec.export.command is not None:
            # What another program reads is not seen: the verdict holds for this run alone.
            recorder.lose()
        recorder.add(_declared(spec, context.workspace))
        emit = partial(_with_record, recorder, context, emit)
    torch.set_num_threads(context.threads)
    isolated.prepare(context.folder, spec.timeout)
    capability = torch.backends.cpu.get_cpu_capability()
    described = environment(spec, capability, torch=torch.__version__)
    start = time.perf_counter() - child.born if child.born else None
    pid = os.getpid()
    try:
        begun = _carried if context.answers else _audited if context.audit is not None else None
        follow = None if begun is None else partial(begun, spec, context)
        result = verify(spec, context, emit, _explain, start, follow, _locate)
    except BaseException as error:
        if os.getpid() != pid:  # a fork that the model made has no result to give
            raise
        result = _failed(spec, context, error, tracebacks.report(error, emit))
    result = result.model_copy(update={"reference": spec.reference})
    emit({"kind": _RESULT, "environment": described, "model": to_message(result)})


def _with_record(
    recorder: AccessRecorder,
    context: Context,
    emit: Callable[[dict[str, Any]], None],
    message: dict[str, Any],
) -> None:
    """Add what was read to what is to be kept."""
    if message.get("kind") in (_RESULT, BLOCK):
        recorded = recorder.message(str(context.workspace), _own(context))
        message = {**message, "recorded": recorded}
    emit(message)


def _failed(spec: ModelSpec, context: Context, error: BaseException, text: str) -> ModelResult:
    """Return the result of a model that would end its process, or on which the gate has failed."""
    source = None
    if isinstance(error, MemoryError):
        code, message = codes.OG503, f"out of memory: {error}"
    elif not isinstance(error, Exception):
        words = f"{type(error).__name__}: {plain(error, 200)}".rstrip(": ")
        line = of_error(error, context.workspace.resolve())
        code, source = codes.OG501, own_source(line)
        message = (
            f"the model's code raised {words}{at(line)}, which ends the process before a result"
        )
    else:
        code = codes.OG505
        message = (
            f"onnx-gate itself failed: {type(error).__name__}: {plain(error, 200)}{_origin(error)}; "
            "the traceback is in the log, please report it"
        )
    tail = last_lines(text.encode("utf-8", "replace"), TAIL_LINES)
    return ModelResult(
        name=spec.name,
        verdict="error",
        required=spec.required,
        error=ModelError(
            kind=code.kinds[0], code=code.code, message=message, source=source, tail=tail
        ),
    )


def _origin(error: BaseException) -> str:
    """Return the last line of ours that an exception has passed, in brackets."""
    package = Path(onnx_gate.__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(package):
            return f" ({Path(frame.filename).relative_to(package.parent)}:{frame.lineno})"
    return ""


def _declared(spec: ModelSpec, workspace: Path) -> Iterator[str]:
    """The files that the manifest names, which native code reads, and those that they name."""
    if spec.weights is not None:
        yield from map(str, checkpoint_files(workspace / spec.weights.file, workspace))
    if spec.model is not None and is_program(spec.model):
        yield str(workspace / spec.model)
    for path in (workspace / name for name in (spec.reference, spec.onnx) if name is not None):
        yield str(path)
        with suppress(Exception):
            model = onnx.load(str(path), load_external_data=False)
            yield from map(str, external_files(model, path.parent))


def _own(context: Context) -> tuple[str, ...]:
    """The folders that this process may write to."""
    confinement = context.confinement
    if confinement is None:
        return (str(context.folder),)
    return str(context.folder), confinement.home, confinement.temporary


def _explain(*arguments: Any) -> dict[str, Any]:
    with child.own_imports():
        from onnx_gate.diagnose.diagnose import explain

    return explain(*arguments)


def _locate(*arguments: Any) -> dict[str, Any]:
    with child.own_imports():
        from onnx_gate.diagnose.blocks import locate

    return locate(*arguments)


def _audited(
    spec: ModelSpec, context: Context, result: ModelResult, *arguments: Any
) -> ModelResult:
    with child.own_imports():
        from onnx_gate.audit.command import audited

    return audited(spec, context, result, *arguments)


def _carried(
    spec: ModelSpec,
    context: Context,
    result: ModelResult,
    checker: Checker,
    exported: Exported,
    _: object,
) -> ModelResult:
    deadline = Deadline(_CARRYING * spec.timeout)
    said = carry(checker, exported, context.folder, deadline)
    return result.model_copy(update={"findings": (*result.findings, *said)})
