"""All models of a manifest: each in a worker of its own, and one report of them all."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnx_gate.cache.cache import Cache
from onnx_gate.cache.lookup import CachedResults, look_up, use_cache
from onnx_gate.errors import UserError
from onnx_gate.findings import codes
from onnx_gate.gate.keep_repro import REPRO, keep_repro
from onnx_gate.gate.progress import Progress
from onnx_gate.gate.shards import part
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.history import History
from onnx_gate.report.model import (
    Counts,
    ManifestInfo,
    ModelError,
    ModelResult,
    Report,
    Shard,
    Verdict,
)
from onnx_gate.report.times import timed_line
from onnx_gate.text import did_you_mean, quote
from onnx_gate.verify.context import Context, today
from onnx_gate.workers import tracebacks
from onnx_gate.workers.admission import expectation
from onnx_gate.workers.launch import Launch, own_folder, plain_files_only
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Outcome, Task

WORKER = "onnx_gate.gate.worker:work"
PRELOAD = (
    "torch",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnx_gate.gate.worker",
    "onnx_gate.gate.warm",
    "onnx_gate.diagnose.diagnose",
)

_TRACE_LINES = 200

_ENDS: dict[str, codes.Code] = {
    "exit": codes.OG501,
    "signal": codes.OG501,
    "lost": codes.OG501,
    "protocol": codes.OG504,
    "done": codes.OG504,
    "timeout": codes.OG502,
    "memory": codes.OG503,
}


@dataclass(frozen=True)
class Options:
    """What of the manifest to verify, and how.

    ``models`` and ``cases`` are globs (none: all); of the models, only the part of ``shard`` is
    verified (none: all of them). ``jobs`` is the number of workers side by
    side (0: as many as there are cores). ``output`` takes the report, the logs, and with
    ``keep_models`` the exported files. ``launch`` says how the models' code is started,
    ``history`` what is known of them from earlier runs. ``cache`` is the folder of a cache of
    verdicts (none: everything is verified); with ``changed`` it is said why each model is verified.
    With ``traceback`` it is shown where the error of a model came from.
    """

    output: Path
    models: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    shard: Shard | None = None
    jobs: int = 0
    keep_models: bool = False
    launch: Launch = Launch()
    history: History = field(default_factory=History)
    cache: Path | None = None
    changed: bool = False
    traceback: bool = False


def run(
    manifest: Manifest,
    options: Options,
    progress: Progress,
    say: Callable[[Sequence[str]], None] = lambda _: None,
) -> Report:
    """Verify the models that ``options`` select and return the report.

    ``say`` is given the lines on what the cache knows. Raises ``UserError`` as ``select`` does.
    """
    begin = time.monotonic()
    specs = select(manifest.models, options.models, options.shard)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    jobs = max(1, min(options.jobs or cores, len(specs)))
    threads = max(1, cores // jobs)
    folders = {spec.name: options.output / "models" / slug(spec.name) for spec in specs}
    logs = {spec.name: options.output / "logs" / f"{slug(spec.name)}.log" for spec in specs}
    repros = {spec.name: options.output / REPRO / slug(spec.name) for spec in specs}
    cache, notes, known = _known(manifest, options, specs, threads, folders, repros)
    if cache is not None:
        say(known.lines(every=options.changed))
    results: dict[str, ModelResult] = dict(known.results)
    environment: dict[str, Any] = dict(known.environment)
    for name, result in results.items():
        progress.finished(name, result.verdict, timed_line(result))
    tasks = [
        _task(manifest, spec, options, threads, folders[spec.name], logs[spec.name], cache, known)
        for spec in specs
        if spec.name not in results
    ]
    traces: dict[str, tuple[str, ...]] = {}
    by_name = {spec.name: spec for spec in specs}

    def on_start(name: str) -> None:
        if cache is not None:
            cache.started(name)
        progress.started(name)

    def on_event(name: str, message: dict[str, Any]) -> None:
        if cache is not None:
            cache.heard()
        if message.get("kind") == "stage":
            progress.stage(name, str(message.get("name", ""))[:40])
        elif message.get("kind") == tracebacks.KIND and options.traceback:
            traces[name] = tuple(str(message.get("text", "")).splitlines()[-_TRACE_LINES:])

    def on_end(name: str, outcome: Outcome) -> None:
        log = logs[name].relative_to(options.output).as_posix()
        results[name] = result_of(by_name[name], outcome, log)
        for message in outcome.messages:
            if isinstance(message.get("environment"), dict):
                environment.update(message["environment"])
        results[name] = keep_repro(results[name], folders[name], repros[name])
        if cache is not None:
            said = outcome.messages if outcome.end == "done" else ()
            cache.ended(by_name[name], results[name], said, folders[name], repros[name])
        if not options.keep_models:
            shutil.rmtree(folders[name], ignore_errors=True)
        elif options.launch.owner is not None:
            plain_files_only(folders[name])
        error = results[name].error
        tail = traces.get(name, error.tail) if error is not None else ()
        progress.finished(name, results[name].verdict, timed_line(results[name]), tail)

    try:
        if tasks:
            if cache is not None:
                cache.watch()
            run_tasks(
                tasks,
                WORKER,
                jobs=jobs,
                on_event=on_event,
                preload=PRELOAD,
                on_start=on_start,
                on_end=on_end,
                launch=options.launch,
            )
    finally:
        # After an interrupt as well: these files are as large as the models.
        if not options.keep_models:
            shutil.rmtree(options.output / "models", ignore_errors=True)
        if cache is not None:
            cache.close()
            notes += cache.notes
    models = tuple(results[spec.name] for spec in specs)
    return Report(
        verdict=overall(models),
        counts=count(models),
        environment=dict(sorted(environment.items())),
        manifest=ManifestInfo(path=manifest.path.name, sha256=manifest.sha256),
        models=models,
        shard=options.shard,
        notes=tuple(notes),
        seconds=round(time.monotonic() - begin, 3),
    )


def select(
    models: Sequence[ModelSpec], patterns: Sequence[str], shard: Shard | None = None
) -> tuple[ModelSpec, ...]:
    """Return the models that match a glob, of these the part of ``shard``.

    Raises ``UserError`` for a glob that matches none, and for more shards than models.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(model.name, pattern) for model in models):
            hint = did_you_mean(pattern, [model.name for model in models])
            raise UserError(f"no model of the manifest matches {quote(pattern)}{hint}")
    chosen = tuple(
        model
        for model in models
        if not patterns or any(fnmatch.fnmatchcase(model.name, p) for p in patterns)
    )
    if shard is None:
        return chosen
    own = set(part([model.name for model in chosen], shard))
    return tuple(model for model in chosen if model.name in own)


def result_of(spec: ModelSpec, outcome: Outcome, log: str) -> ModelResult:
    """Return what is known of a model once its worker has ended.

    Only a worker that ended as it should has said everything: any other end is an error, whatever
    was said before.
    """
    seen: dict[str, Any] = {
        "line": spec.line or None,
        "required": spec.required,
        "seconds": round(max(0.0, outcome.seconds), 3),
        "peak_memory": outcome.peak_memory or None,
    }
    result = _last_result(spec, outcome)
    if result is not None and outcome.end == "done":
        if result.error is not None:
            result = result.model_copy(
                update={"error": result.error.model_copy(update={"log": log})}
            )
        return result.model_copy(update=seen)
    code = _ENDS[outcome.end]
    message = outcome.detail
    if outcome.end == "done":
        message = "the worker ended without a complete result"
    return ModelResult(
        name=spec.name,
        verdict="error",
        error=ModelError(
            kind=code.kinds[0], code=code.code, message=message, log=log, tail=outcome.tail
        ),
        **seen,
    )


def overall(models: Sequence[ModelResult]) -> Verdict:
    """Return the verdict of a run: of its required models; without any model it is an error."""
    if not models:
        return "error"
    verdicts = {model.verdict for model in models if model.required}
    if "error" in verdicts:
        return "error"
    return "diverged" if "diverged" in verdicts else "pass"


def count(models: Sequence[ModelResult]) -> Counts:
    """Return how many models there are of each verdict."""
    verdicts = [model.verdict for model in models]
    return Counts.model_validate(
        {verdict: verdicts.count(verdict) for verdict in ("pass", "diverged", "error")}
    )


def slug(name: str) -> str:
    """Return a file name for a model's name; two names never share one."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:60]
    if plain == name and not name.startswith("."):
        return name
    return f"{plain.lstrip('.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _last_result(spec: ModelSpec, outcome: Outcome) -> ModelResult | None:
    for message in reversed(outcome.messages):
        try:
            result = ModelResult.model_validate(message.get("model"))
        except ValidationError:
            return None
        return result if result.name == spec.name else None
    return None


def _known(
    manifest: Manifest,
    options: Options,
    specs: Sequence[ModelSpec],
    threads: int,
    folders: Mapping[str, Path],
    repros: Mapping[str, Path],
) -> tuple[Cache | None, list[str], CachedResults]:
    """Return the cache, what is to be said of it, and what it knows."""
    if options.cache is None:
        return None, [], CachedResults()
    cache, note = use_cache(
        options.cache,
        manifest,
        options.launch,
        output=options.output,
        threads=threads,
        cases=options.cases,
        today=today(),
    )
    if cache is None:
        return None, [note], CachedResults()
    return cache, [], look_up(cache, specs, folders, repros, keep_models=options.keep_models)


def _task(
    manifest: Manifest,
    spec: ModelSpec,
    options: Options,
    threads: int,
    folder: Path,
    log: Path,
    cache: Cache | None,
    known: CachedResults,
) -> Task:
    log.parent.mkdir(parents=True, exist_ok=True)
    if options.launch.owner is not None:
        own_folder(folder, options.launch.owner)
    context = Context(
        workspace=manifest.path.resolve().parent,
        folder=folder.resolve(),
        patterns=options.cases,
        threads=threads,
        confinement=options.launch.confinement(slug(spec.name), folder.resolve()),
        record=cache is not None,
        reuse=cache is not None and cache.restore(known.exported.get(spec.name, {}), folder),
    )
    history = options.history.or_else(known.history)
    return Task(
        spec.name,
        (spec, context),
        spec.timeout,
        spec.memory,
        log,
        expected_seconds=history.seconds.get(spec.name),
        expected_memory=expectation(
            history.memory.get(spec.name), _weights(spec, context.workspace), spec.memory
        ),
    )


def _weights(spec: ModelSpec, workspace: Path) -> int:
    """Bytes of the files of weights that the manifest names, external data beside them included."""
    total = 0
    for path in filter(None, (spec.weights, spec.onnx)):
        file = workspace / path
        with suppress(OSError):
            total += sum(
                each.stat().st_size
                for each in file.parent.iterdir()
                if each.name.startswith(file.name)
            )
    return total
