"""Remedies of the models of a run that are red: what to try, the workers that try it, what held.

The verdicts are settled before, and stay. Trying takes no longer than the run itself has taken.
"""

from __future__ import annotations

import difflib
import hashlib
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from onnx_gate.deadline import Deadline
from onnx_gate.errors import UserError
from onnx_gate.files import remove_tree, sha256_of
from onnx_gate.findings import codes
from onnx_gate.gate import services
from onnx_gate.gate.options import Options
from onnx_gate.gate.progress import ProgressDisplay
from onnx_gate.gate.run import share_cores
from onnx_gate.gate.select import select, with_runtimes
from onnx_gate.gate.tasks import PRELOAD
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.manifest.change import written
from onnx_gate.remedy.candidate import Candidate, Ladder
from onnx_gate.remedy.settings import settings
from onnx_gate.remedy.source_remedies import blamed, sources
from onnx_gate.report.io import to_json
from onnx_gate.report.layout import Layout, slug
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.model.remedy import (
    MAX_PATCH,
    FreshExport,
    LineEdit,
    Remedies,
    Remedy,
    SettingChange,
)
from onnx_gate.text import quote
from onnx_gate.verify.context import Context
from onnx_gate.workers.channel import RESULT
from onnx_gate.workers.launch import own_folder
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Outcome, Task

WORKER = "onnx_gate.remedy.tries:work"
_MADE = "made.onnx"  # as the worker calls it, which imports torch
# Nobody waits longer for a report that is done, however long the run was.
_MOST_SECONDS = 300.0
# To tell of what one worker has tried takes milliseconds, if its files are nothing out of the ordinary.
_TELLING_SECONDS = 10.0
# The longest module of transformers (4,300 lines) has 344,000; so many take two seconds.
_MOST_ALIKE = 10_000_000
_STAGE = "remedies"
_CONTEXT_LINES = 3


def with_remedies(
    manifest: Manifest, options: Options, report: Report, progress: ProgressDisplay
) -> Report:
    """Return the report with what was tried for its red models, and what held.

    Each has an equal part of the time that the run has taken. Whatever happens here, verdicts stay as
    they are: a failure of the gate's own is a note.
    """
    try:
        return _Phase(manifest, options, report, progress).run()
    except Exception as error:
        traceback.print_exc()
        note = f"no remedy was tried: {type(error).__name__}: {quote(error, 200)}"
        return report.model_copy(update={"notes": (*report.notes, note)})


def _in_blocks(result: ModelResult) -> bool:
    """Return whether a model was taken block by block: a trial takes the whole of it."""
    failed = result.error is not None and result.error.code == codes.OG434.code
    return failed or any(codes.OG433.among(result.findings))


@dataclass
class _Phase:
    manifest: Manifest
    options: Options
    report: Report
    progress: ProgressDisplay
    read: dict[str, str] = field(default_factory=dict)  # the texts that candidates were made of

    def run(self) -> Report:
        specs = {
            spec.name: spec
            for spec in with_runtimes(
                select(self.manifest.models, self.options.models, self.options.shard),
                self.options.runtimes,
            )
        }
        ladders = {
            result.name: found
            for result in self.report.models
            if result.verdict != "pass" and result.name in specs and not _in_blocks(result)
            for found in [tuple(self._candidates(specs[result.name], result))]
            if found
        }
        if not ladders:
            return self.report
        jobs, threads = share_cores(self.options.jobs, len(ladders))
        own = min(self.report.seconds or 0.0, _MOST_SECONDS)
        seconds = self.options.remedies * own * jobs / len(ladders)
        layout = Layout(self.options.output)
        layout.remedies.mkdir(parents=True, exist_ok=True)
        tasks = [
            self._task(specs[name], Ladder(every, seconds), layout, threads)
            for name, every in ladders.items()
        ]
        most = f"{seconds * len(ladders) / jobs:.0f} s at most"
        count = f"{len(ladders)} model{'s' if len(ladders) > 1 else ''}"
        self.progress.aside(f"trying what makes {count} green ({most}; --remedies 0 tries nothing)")
        heard_of: dict[str, set[int]] = {}

        def heard(name: str, message: Mapping[str, Any]) -> None:
            number = _number(message, ladders[name])
            if number is not None and number not in heard_of.setdefault(name, set()):
                heard_of[name].add(number)
                self.progress.stage(name, _STAGE, f"{len(heard_of[name])} of {len(ladders[name])}")

        models = [specs[name] for name in ladders]
        with services.running(models, self.options.launch) as launch:
            outcomes = run_tasks(
                tasks, WORKER, jobs=jobs, on_event=heard, preload=PRELOAD, launch=launch
            )
        results = [
            self._with(result, specs[result.name], ladders[result.name], outcomes[result.name])
            if result.name in ladders
            else result
            for result in self.report.models
        ]
        told = self.report.model_copy(update={"models": tuple(results)})
        # What a report has no room for is left out of it: the verdicts were there before.
        fits = len(to_json(told).encode()) <= self.options.report_bytes
        return told if fits else self.report

    def _candidates(self, spec: ModelSpec, result: ModelResult) -> Iterator[Candidate]:
        lines = blamed(spec, result)
        texts = {}
        for name in lines:
            with suppress(OSError, UnicodeDecodeError):
                texts[name] = source_file(self.manifest.workspace, name).read_bytes().decode()
        self.read |= texts
        in_settings, in_source = settings(spec, result), sources(spec, result, texts, lines)
        # What torch.export refuses or bakes in is seldom taken better by the other exporter.
        first = in_source if spec.export.exporter == "dynamo" else in_settings
        yield from first
        yield from in_settings if first is in_source else in_source

    def _task(self, spec: ModelSpec, ladder: Ladder, layout: Layout, threads: int) -> Task:
        folder, launch = layout.remedy(spec.name), self.options.launch
        own_folder(folder, launch.owner)
        context = Context(
            workspace=self.manifest.path.resolve().parent,
            folder=folder.resolve(),
            threads=threads,
            confinement=launch.confinement(f"{slug(spec.name)}.remedies", folder.resolve()),
            advise=False,
        )
        log = layout.log(f"{spec.name}.remedies")
        return Task(spec.name, (spec, context, ladder), 1.1 * ladder.seconds + 10, spec.memory, log)

    def _with(
        self, result: ModelResult, spec: ModelSpec, every: Sequence[Candidate], outcome: Outcome
    ) -> ModelResult:
        held, tried, failed, fresh = [], set(), [], None
        deadline = Deadline(_TELLING_SECONDS)
        for message in outcome.messages:
            number, holds = _number(message, every), message.get("holds")
            if number is None or number in tried or deadline.passed():
                continue
            tried.add(number)
            if holds is False and every[number].changes and not every[number].texts:
                failed.append(_changes(every[number]))
            if holds is True and every[number].evidence:
                (change,) = every[number].changes
                fresh = FreshExport(writer=spec.writer, export=change.value)
            elif holds is True:
                compared = message.get("compared")
                held.append(
                    self._remedy(
                        spec, every[number], compared if isinstance(compared, int) else None
                    )
                )
        folder = Layout(self.options.output).remedy(spec.name)
        if not any(remedy.made for remedy in held):
            remove_tree(folder)
        kinds = {bool(remedy.rewrite) for remedy in held} | (
            {False} if fresh is not None else set()
        )
        left = [
            n
            for n, each in enumerate(every)
            if n not in tried and True not in kinds and bool(each.texts) not in kinds
        ]
        remedies = Remedies(
            held=tuple(held),
            tried=len(tried),
            left=len(left),
            failed=tuple(failed),
            fresh=fresh,
            seconds=round(outcome.seconds, 3),
        )
        return result.model_copy(update={"remedies": remedies})

    def _remedy(self, spec: ModelSpec, candidate: Candidate, compared: int | None) -> Remedy:
        workspace = self.manifest.workspace
        texts = dict(candidate.texts)
        before = {name: self.read[name] for name in texts}
        content = self.manifest.path.read_bytes()
        if candidate.changes and hashlib.sha256(content).hexdigest() == self.manifest.sha256:
            name = self.manifest.path.name
            before[name] = content.decode()
            with suppress(UserError):
                texts[name] = written(
                    before[name], self.manifest.path, spec.name, candidate.changes
                )
        if candidate.changes and self.manifest.path.name not in texts:
            texts = {}  # no part of it is right without the others
        if any(_alike(before[name], text) > _MOST_ALIKE for name, text in texts.items()):
            texts = {}
        diff = "".join(patch(name, before[name], text) for name, text in texts.items())
        if len(diff) > MAX_PATCH:
            texts, diff = {}, ""
        files = {name: hashlib.sha256(before[name].encode()).hexdigest() for name in texts}
        edits = [e for name, text in texts.items() for e in line_edits(name, before[name], text)]
        made = None
        if candidate.fresh:
            made = _kept(Layout(self.options.output), spec.name)
            assert spec.onnx is not None
            files[spec.onnx] = sha256_of(workspace / spec.onnx)
        return Remedy(
            kind=candidate.kind,
            changes=_changes(candidate),
            rewrite=candidate.rewrite,
            file=spec.onnx if candidate.fresh else None,
            made=made,
            edits=tuple(edits),
            patch=diff,
            files=files,
            compared=compared,
        )


def _number(message: Mapping[str, Any], every: Sequence[Candidate]) -> int | None:
    """Return which of the candidates a message is an answer about, if it is one."""
    number = message.get("number") if message.get("kind") == RESULT else None
    return number if type(number) is int and 0 <= number < len(every) else None


def _alike(before: str, after: str) -> int:
    """Return how many pairs of lines of two texts are alike: what telling them apart costs."""
    lines = Counter(before.split("\n"))
    return sum(lines[line] * count for line, count in Counter(after.split("\n")).items())


def _kept(layout: Layout, name: str) -> str | None:
    """Return where the file of a fresh export lies, with nothing of the trial beside it."""
    folder = layout.remedy(name)
    file = folder / _MADE
    if file.is_symlink() or not file.is_file():
        return None
    for other in list(folder.iterdir()):
        if other != file:
            remove_tree(other)
    return PurePosixPath(file.relative_to(layout.output)).as_posix()


def source_file(workspace: Path, name: str) -> Path:
    """Return the path of a file of the workspace; raises ``OSError`` where it is none, or a link."""
    path = workspace / name
    root = workspace.resolve()
    if not path.is_file() or path.resolve() != root / name:
        raise FileNotFoundError(name)
    return path


def line_edits(name: str, before: str, after: str) -> list[LineEdit]:
    """Return what differs between two texts of a file, in order; what is put in, with a line beside."""
    old, new = before.split("\n"), after.split("\n")
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    edits = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "insert" and i:
            i, k = i - 1, k - 1
        elif tag == "insert":
            j, m = j + 1, m + 1
        if tag != "equal":
            edits.append(LineEdit(file=name, line=i + 1, old=tuple(old[i:j]), new=tuple(new[k:m])))
    return edits


def patch(name: str, before: str, after: str) -> str:
    """Return two texts of a file as a unified diff, which ``git apply`` takes."""
    lines = difflib.unified_diff(
        before.removesuffix("\n").split("\n"),
        after.removesuffix("\n").split("\n"),
        f"a/{name}",
        f"b/{name}",
        n=_CONTEXT_LINES,
        lineterm="",
    )
    return "".join(f"{line}\n" for line in lines)


def _changes(candidate: Candidate) -> tuple[SettingChange, ...]:
    return tuple(SettingChange(key=c.key, value=c.value) for c in candidate.changes)
