"""All models of a manifest: each in a worker of its own, and one report of them all."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from onnx_gate.cache.cache import Cache
from onnx_gate.cache.hits import CachedResults, look_up, use_cache
from onnx_gate.files import plain_files_only, remove_tree
from onnx_gate.findings import codes
from onnx_gate.gate import services
from onnx_gate.gate.answers_folder import keep_answers
from onnx_gate.gate.history import History, history_of_models
from onnx_gate.gate.journal import BLOCKS, FAULTS, Journal
from onnx_gate.gate.kept_files import keep_repro, with_kept_files
from onnx_gate.gate.known_blocks import KnownBlocks
from onnx_gate.gate.options import Options
from onnx_gate.gate.outcome import not_started, result_of, unverified
from onnx_gate.gate.progress import ProgressDisplay
from onnx_gate.gate.provenance import manifest_info
from onnx_gate.gate.select import select, with_runtimes
from onnx_gate.gate.tasks import HELD_PRELOAD, HELD_WORKER, PRELOAD, PRELOAD_ONE, WORKER, Tasks
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.join.amiss import plan_of
from onnx_gate.report.join.fitted import fitted
from onnx_gate.report.join.verdict import count, overall
from onnx_gate.report.layout import INTERRUPTED, Layout
from onnx_gate.report.model import ModelError, ModelResult, Portion, Problem, Report, Shard
from onnx_gate.report.story.summary import model_line
from onnx_gate.text import plain
from onnx_gate.verify.context import ANSWERS, AUDIT_TIMES, BEGUN, BLOCK, MUTANT, today
from onnx_gate.workers import tracebacks
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Outcome

_TRACE_LINES = 200
# Whatever ends more processes than this is no single fault, and each costs an export.
_MOST_WORKERS = 20


class Interrupted(KeyboardInterrupt):
    """Somebody has stopped the run; ``report`` has what was verified until then."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def run(
    manifest: Manifest,
    options: Options,
    history: History,
    progress: ProgressDisplay,
    say: Callable[[Sequence[str]], None] = lambda _: None,
) -> Report:
    """Verify the models that ``options`` select and return the report.

    ``history`` is what is known of them from earlier runs; ``say`` is given the lines on what the
    cache knows. Raises ``UserError`` as ``select`` does. Should the gate itself fail on the way, the
    report has what was verified until then, and says of the rest that it was not; so has the
    report of ``Interrupted``, which is raised for a ``KeyboardInterrupt``.
    """
    begin = time.monotonic()
    created = datetime.now(timezone.utc).replace(microsecond=0)
    specs = with_runtimes(select(manifest.models, options.models, options.shard), options.runtimes)
    jobs, threads = share_cores(options.jobs, len(specs))
    if options.launch.forked:
        threads = 1  # of a pool of threads, none comes along
    layout = Layout(options.output)
    audits = options.audit is not None
    verdicts = options.knows_verdicts
    blocks = _known_blocks(manifest, options, threads, specs)
    cache = blocks.cache
    known = look_up(cache, specs, layout, keep_models=options.keep_models, verdicts=verdicts)
    journal = Journal(options.journal if audits else None, FAULTS)
    if cache.records and verdicts:
        say(known.lines(every=options.changed))
    models = _Models(specs, options, layout, known, progress, journal, blocks)
    problems: tuple[Problem, ...] = ()
    lost = unverified(codes.OG505, "onnx-gate itself failed before this model was verified")
    interrupted = False
    try:
        history = history.or_else(history_of_models(known.past))
        tasks = Tasks(manifest, options, layout, known, history, journal, blocks)
        asked = [spec for spec in specs if spec.name not in models.results]
        while asked:
            wanted = []
            for spec in asked:
                try:
                    wanted.append(tasks.of(spec, threads, models.crashes.get(spec.name, {})))
                except OSError as error:
                    models.ended(spec.name, not_started(error))
            if wanted:
                cache.watch()
                here = PRELOAD if len(wanted) > 1 else PRELOAD_ONE
                with services.running(asked, options.launch) as launch:
                    run_tasks(
                        wanted,
                        WORKER if options.against is None else HELD_WORKER,
                        jobs=jobs,
                        on_event=models.reported,
                        preload=here if options.against is None else HELD_PRELOAD,
                        on_start=models.started,
                        on_end=models.ended,
                        launch=launch,
                    )
            asked, models.unfinished = models.unfinished, []
    except KeyboardInterrupt:
        interrupted = True
        lost = unverified(
            codes.OG506,
            "interrupted before this model had a verdict",
            # The code's page speaks of the jobs of a CI.
            remedy="" if os.environ.get("CI") else "run it again",
        )
        done = f"{len(models.results)} of {len(specs)} models had a verdict"
        open_models = (spec.name for spec in specs if spec.name not in models.results)
        kept = "; the blocks that were verified are kept, and the next run goes on from them"
        done += kept if blocks.kept(open_models) else ""
        problems = (Problem(message=f"interrupted when {done}"),)
    except (Exception, SystemExit) as error:  # Rich leaves where nobody reads what it prints
        traceback.print_exc()
        message = f"onnx-gate itself failed: {type(error).__name__}: {plain(error, 300)}"
        problems = (Problem(message=message),)
    finally:
        # After an interrupt as well: these files are as large as the models.
        if not options.keep_models:
            remove_tree(layout.models)
        blocks.close()
    results = tuple(models.result(spec, lost) for spec in specs)
    if options.keep_models and options.against is None:
        results = tuple(map(with_kept_files(manifest.workspace, specs, layout), results))
    report = Report(
        verdict="error" if problems else overall(results),
        counts=count(results),
        environment=_environment(results),
        manifest=manifest_info(manifest),
        models=results,
        problems=problems,
        shard=_planned(manifest, options),
        sandbox=options.sandbox,
        notes=(*_held_notes(options), *cache.notes, *models.notes),
        seconds=round(time.monotonic() - begin, 3),
        created=created,
        commit=options.commit,
        held=None if options.against is None else options.against.held,
    )
    report = fitted(report, options.report_bytes)
    if interrupted:
        raise Interrupted(report)
    return report


class _Models:
    """The models of one run, as their workers come and go."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        options: Options,
        layout: Layout,
        known: CachedResults,
        progress: ProgressDisplay,
        journal: Journal,
        blocks: KnownBlocks,
    ) -> None:
        self.results: dict[str, ModelResult] = dict(known.results)
        self.notes: list[str] = []
        self.unfinished: list[ModelSpec] = []
        self.crashes: dict[str, dict[str, str]] = {}
        self._at: dict[str, tuple[str, str]] = {}
        self._lives: dict[str, list[float]] = {}
        self._specs = {spec.name: spec for spec in specs}
        self._options = options
        self._layout = layout
        self._progress = progress
        self._journal = journal
        self._blocks = blocks
        self._tracebacks: dict[str, tuple[str, ...]] = {}
        for result in self.results.values():
            progress.finished(result.name, result.verdict, model_line(result))

    def started(self, name: str) -> None:
        """The worker of a model runs."""
        self._blocks.cache.started(name)
        self._progress.started(name)

    def reported(self, name: str, message: Mapping[str, Any]) -> None:
        """The worker of a model has sent a message, which nobody vouches for."""
        self._blocks.cache.heard()
        if message.get("kind") == "stage":
            stage, step = (str(message.get(key, ""))[:40] for key in ("name", "step"))
            self._at[name] = stage, str(message.get("loading", ""))
            self._progress.stage(name, stage, step)
        elif message.get("kind") == BEGUN and self._options.audit is not None:
            self._journal.begin(name, message)
        elif message.get("kind") == MUTANT:
            self._journal.add(name, message)
        elif message.get("kind") == BLOCK:
            self._blocks.add(self._specs[name], message)
        elif message.get("kind") == tracebacks.KIND and self._options.traceback:
            lines = str(message.get("text", "")).splitlines()
            self._tracebacks[name] = tuple(lines[-_TRACE_LINES:])

    def ended(self, name: str, outcome: Outcome) -> None:
        """The worker of a model is gone: its result stands, whatever tidying up comes to.

        Unless a fault of its audit has ended it: then the audit goes on behind that, in another
        worker, as long as there is time left for it. Where a runtime has ended it in loading the file,
        another verifies the model by what that is told of.
        """
        fatal = self._journal.ended(name, None if outcome.end == "done" else outcome.detail)
        lives, spec = self._lives.setdefault(name, []), self._specs[name]
        lives.append(outcome.seconds)
        if fatal and len(lives) < _MOST_WORKERS and sum(lives) < AUDIT_TIMES * spec.timeout:
            remove_tree(self._layout.model(name))
            self.unfinished.append(spec)
            return
        stage, loading = self._at.pop(name, ("", ""))
        crashes = self.crashes.setdefault(name, {})
        if outcome.end == "signal" and loading and len(crashes) <= len(spec.runtimes):
            crashes[loading] = outcome.detail
            remove_tree(self._layout.model(name))
            self.unfinished.append(spec)
            return
        log = self._layout.log(name).relative_to(self._layout.output).as_posix()
        audited = {} if self._options.audit is not None else {"audit": None}
        self.results[name] = result_of(spec, outcome, log, stage).model_copy(update=audited)
        if self.results[name].error is None:
            self._blocks.ended(name)
        try:
            self._keep(name, outcome)
        except Exception as error:
            traceback.print_exc()
            self.notes.append(f"{plain(name, 100)}: what it left could not be kept: {plain(error)}")
        result = self.results[name]
        tail = () if result.error is None else self._tracebacks.get(name, result.error.tail)
        self._progress.finished(name, result.verdict, model_line(result), tail)

    def result(self, spec: ModelSpec, lost: ModelError) -> ModelResult:
        """Return the result of a model; of one that has none, ``lost`` says why.

        Of which part of the model it is, is not the worker's to say.
        """
        result = self.results.get(spec.name) or self._lost(spec, lost)
        if spec.portion is None:
            return result.model_copy(update={"portion": None})
        of = "" if result.portion is None else result.portion.of
        portion = Portion(index=spec.portion[0], count=spec.portion[1], of=of)
        return result.model_copy(update={"portion": portion})

    def _lost(self, spec: ModelSpec, lost: ModelError) -> ModelResult:
        return ModelResult(
            name=spec.name,
            line=spec.line or None,
            verdict="error",
            required=spec.required,
            error=lost,
        )

    def _keep(self, name: str, outcome: Outcome) -> None:
        """Keep the reproduction, what the cache wants, and the models where they are asked for."""
        folder, repro = self._layout.model(name), self._layout.repro(name)
        self.results[name] = keep_repro(self.results[name], folder, repro)
        if self._options.answers is not None:
            source = folder / ANSWERS
            self.results[name] = keep_answers(self.results[name], source, self._options.answers)
        messages = outcome.messages if outcome.end == "done" else ()
        if (
            self._options.knows_verdicts
        ):  # what has no diagnosis and no advice is no verdict to keep
            self._blocks.cache.ended(self._specs[name], self.results[name], messages, folder, repro)
        if not self._options.keep_models:
            remove_tree(folder)
        elif self._options.launch.policy is not None:
            plain_files_only(folder)


def _environment(results: Sequence[ModelResult]) -> dict[str, Any]:
    """Return what the models' processes say of the machine: of what they disagree on, the last word."""
    told = {name: value for each in results for name, value in each.environment.items()}
    return dict(sorted(told.items()))


def _planned(manifest: Manifest, options: Options) -> Shard | None:
    if options.shard is None:
        return None
    names = [spec.name for spec in select(manifest.models, options.models)]
    return options.shard.model_copy(update={"plan": plan_of(names, options.shard.count)})


def share_cores(jobs: int, models: int) -> tuple[int, int]:
    """Return how many workers run side by side, and how many threads each has."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    jobs = max(1, min(jobs or cores, models))
    return jobs, max(1, cores // jobs)


def _held_notes(options: Options) -> tuple[str, ...]:
    if options.against is None:
        return ()
    held = options.against.held
    where = [str(held.environment.get(key, "")) for key in ("torch", "cpu_capability", "machine")]
    on = f", torch {plain(', '.join(filter(None, where)), 100)}" if all(where) else ""
    when = f" of {held.created:%Y-%m-%d %H:%M} UTC" if held.created is not None else ""
    return (f"held against PyTorch's answers in the report {held.sha256[:12]}{when}{on}",)


def _known_blocks(
    manifest: Manifest, options: Options, threads: int, specs: Sequence[ModelSpec]
) -> KnownBlocks:
    """Open the cache; where there is none, one for the blocks of a run that was interrupted."""
    folder, interrupted = options.cache, None
    large = any(spec.weights is not None and spec.verify != "whole" for spec in specs)
    if folder is None and options.journal is not None and large and not options.follows:
        folder = interrupted = options.journal / INTERRUPTED
    cache = Cache()
    if folder is not None:
        cache = use_cache(
            folder,
            manifest,
            options.launch,
            output=options.output,
            threads=threads,
            cases=options.cases,
            today=today(),
            versions=services.versions(specs),
        )
    return KnownBlocks(cache, Journal(folder if cache.records else None, BLOCKS), interrupted)
