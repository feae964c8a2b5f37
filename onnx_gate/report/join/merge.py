"""The reports of the shards as one; where a part of them is not there, that is an error."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from onnx_gate.errors import UserError
from onnx_gate.findings import codes
from onnx_gate.report.io import MAX_BYTES, read_report
from onnx_gate.report.join.verdict import VERDICTS, count, overall, worst_verdict
from onnx_gate.report.layout import REPORT
from onnx_gate.report.model import (
    MAX_SHARDS,
    ManifestInfo,
    ModelError,
    ModelResult,
    Problem,
    Report,
    Run,
    Sandbox,
    Shard,
)
from onnx_gate.report.model.since import Since
from onnx_gate.text import format_int, listed, quote

_VERSIONS = ("python", "torch", "onnx", "onnxruntime")
_LEVELS = ("full", "partial", "none", "off")
_SHOWN = 20
_H = TypeVar("_H", bound=Hashable)


def find_reports(paths: Iterable[Path], output: Path | None = None) -> list[Path]:
    """Return the files among ``paths``, and for each folder the reports in it.

    That is its own ``report.json``, or else those of the folders in it, as each artifact is one
    folder. Further down lies what models have written, who could write a report as well. Sorted
    within a folder, each file once, and without the one that ``output`` has from an earlier merge.
    A folder without any report stays in the list.
    """
    own = os.path.realpath(output / REPORT) if output is not None else None
    files_by_path: dict[str, Path] = {}
    for path in paths:
        files = [path]
        if os.path.isdir(path):
            levels = [path / REPORT], [each / REPORT for each in _folders(path)]
            found = ([e for e in level if _is_report(e, own)] for level in levels)
            files = next(filter(None, found), [path])
        for file in files:
            files_by_path.setdefault(os.path.realpath(file), file)
    return list(files_by_path.values())


def _folders(path: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    return []


def _is_report(path: Path, own: str | None) -> bool:
    return path.is_file() and os.path.realpath(path) != own


def plan_of(names: Sequence[str], count: int) -> str:
    """Return what tells a plan from others: a digest of its models and of the number of its shards."""
    return hashlib.sha256(json.dumps([count, *names]).encode()).hexdigest()[:16]


def find_report(path: Path) -> Path:
    """Return a file, or the one report below a folder; raises ``UserError`` where there are several."""
    files = find_reports([path])
    if len(files) > 1:
        raise UserError(
            f"{path}: {len(files)} reports below it; name one, or make one of them: onnx-gate merge"
        )
    return files[0]


def merge_files(
    paths: Iterable[Path],
    names: Sequence[str] | None = None,
    manifest: ManifestInfo | None = None,
    run: Run | None = None,
    max_bytes: int = MAX_BYTES,
) -> Report:
    """Read and merge reports; a path without a valid one is a problem of the merged report."""
    reports: list[Report] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            reports.append(read_report(path, max_bytes))
        except UserError as error:
            problems.append(Problem(message=f"{error}; run the job that writes it again"))
    merged = merge(reports, names, manifest, run)
    if not problems:
        return merged
    return merged.model_copy(update={"verdict": "error", "problems": (*problems, *merged.problems)})


def merge(
    reports: Sequence[Report],
    names: Sequence[str] | None = None,
    manifest: ManifestInfo | None = None,
    run: Run | None = None,
) -> Report:
    """Return one report of all models in ``reports``, in the manifest's order.

    ``names`` are the models that there should be, in order, ``manifest`` is what the reports
    should be of, and ``run`` the workflow run that should have made them: what another run has
    made is not believed. A model without a result is an error by name; of several results the
    worst counts. Whatever is missing, there twice, or of another manifest, run or environment is a
    problem, and the verdict then is ``error``.
    """
    own = [report for report in reports if run is None or is_of(report, run)]
    latest = _latest(own)
    results = _worst_by_name(model for report in latest for model in report.models)
    lost = [_lost(name) for name in names or () if name not in results]
    models = _ordered([*results.values(), *lost], names)
    problems = _united(
        [
            *(problem for report in latest for problem in report.problems),
            *_foreign(reports, run),
            *_missing_parts(latest),
            *_other_plans(latest, names),
            *_uncovered(latest, names),
            *_disagreements(latest, manifest),
            *_doubled(latest),
        ]
    )
    verdicts = [overall(models), *(report.verdict for report in latest)]
    baselines = _united(report.baseline for report in latest)
    commits = _united(report.commit for report in latest)
    notes = _united(note for report in latest for note in report.notes)
    if len(baselines) > 1:
        notes += ("the shards were compared with different baselines",)
    return Report(
        verdict="error" if problems else worst_verdict(verdicts),
        counts=count(models),
        environment=_environment(latest),
        manifest=manifest or (latest[0].manifest if latest else ManifestInfo(path="", sha256="")),
        models=models,
        problems=problems,
        changes=_united(change for report in latest for change in report.changes),
        baseline=baselines[0] if len(baselines) == 1 else None,
        run=run or _latest_run(latest),
        sandbox=_weakest([report.sandbox for report in latest]),
        notes=notes,
        # The shards run side by side, so that the longest of them is what there was to wait for.
        seconds=max((each.seconds for each in latest if each.seconds is not None), default=None),
        created=min((each.created for each in latest if each.created is not None), default=None),
        commit=commits[0] if len(commits) == 1 else None,
        since=_since(latest),
    )


def _since(reports: Sequence[Report]) -> Since | None:
    """Unite what packages made of the shards' models, where all of them are of the same packages."""
    found = [each.since for each in reports if each.since is not None]
    if (
        len(found) < len(reports)
        or len({(s.base_file, s.head_file, s.packages) for s in found}) != 1
    ):
        return None
    answers = tuple(answer for each in found for answer in each.answers)
    runs = sum(each.runs for each in found)
    return found[0].model_copy(update={"answers": answers, "runs": runs})


def is_of(report: Report, run: Run) -> bool:
    """Return whether this run made a report, in this attempt or before a job was run again."""
    made = report.run
    return (
        made is not None
        and (made.id, made.sha) == (run.id, run.sha)
        and made.attempt <= run.attempt
    )


def _latest(reports: Sequence[Report]) -> list[Report]:
    """Leave out what an earlier attempt of the same run left of a shard that was run again."""

    def key(shard: Shard, run: Run) -> tuple[Shard, int]:
        return shard.model_copy(update={"plan": None}), run.id

    attempts: dict[tuple[Shard, int], int] = {}
    for report in reports:
        if report.shard is not None and report.run is not None:
            same = key(report.shard, report.run)
            attempts[same] = max(attempts.get(same, 0), report.run.attempt)
    return [
        report
        for report in reports
        if report.shard is None
        or report.run is None
        or report.run.attempt == attempts[key(report.shard, report.run)]
    ]


def _latest_run(reports: Sequence[Report]) -> Run | None:
    """Return the run that made all of them, in its last attempt; none where they are of several."""
    runs = [report.run for report in reports if report.run is not None]
    if len(runs) < len(reports) or len({(run.id, run.sha) for run in runs}) != 1:
        return None
    return max(runs, key=lambda run: run.attempt)


def _foreign(reports: Sequence[Report], run: Run | None) -> Iterator[Problem]:
    """Reports of other runs than ``run``, or of several where it is not known which one counts."""
    if run is not None:
        others = [each for each in reports if not is_of(each, run)]
        if others:
            made = _united(f"{_label(each)} of {run_label(each)}" for each in others)
            yield Problem(
                message=f"made by another run than this ({_run_label_of(run)}), and therefore not "
                f"believed: {_few(made)}; let every job of this run upload its report, "
                "and commit none"
            )
        return
    made_by = _where(reports, lambda report: run_label(report) if report.run else None)
    if len(_united((each.run.id, each.run.sha) for each in reports if each.run)) > 1:
        yield Problem(
            message=f"the reports are of different runs: {_listed(made_by)}; merge those of one"
        )


def run_label(report: Report) -> str:
    """Return which run made a report, in words."""
    return _run_label_of(report.run) if report.run is not None else "no run"


def _run_label_of(run: Run) -> str:
    return f"run {format_int(run.id)} at {quote(run.sha[:7])}"


def _worst_by_name(models: Iterable[ModelResult]) -> dict[str, ModelResult]:
    results: dict[str, ModelResult] = {}
    for model in models:
        known = results.get(model.name)
        if known is None or _severity(known) < _severity(model):
            results[model.name] = model
    return results


def _severity(model: ModelResult) -> int:
    return VERDICTS.index(model.verdict)


def _lost(name: str) -> ModelResult:
    """Return the row of a model that the run was to verify, and no report knows of."""
    return ModelResult(
        name=name,
        verdict="error",
        error=ModelError(
            kind="unverified",
            code=codes.OG506.code,
            message="no report has a result for it; run the job that was to verify it again",
        ),
    )


def _missing_parts(reports: Sequence[Report]) -> Iterator[Problem]:
    if not reports:
        yield Problem(message="there is no report to merge; see why no job has written one")
    shards = [report.shard for report in reports if report.shard is not None]
    if len(reports) > 1 and len(shards) < len(reports):
        yield Problem(
            message=f"{len(reports) - len(shards)} of {len(reports)} reports are of no shard; "
            "merge the reports of one plan only, each verified with --shard"
        )
    counts = _united(shard.count for shard in shards)
    if len(counts) > 1:
        yield Problem(
            message=f"the reports are of plans of {_few(map(format_int, counts))} shards; run all jobs "
            "of one plan again"
        )
    for total in counts:
        indices = Counter(shard.index for shard in shards if shard.count == total)
        if total > MAX_SHARDS or max(indices) > total:
            yield Problem(
                message=f"shard {format_int(max(indices))}/{format_int(total)} is none of at most "
                f"{MAX_SHARDS}; take the shards from `onnx-gate plan`"
            )
            continue
        twice = [f"{index}/{total}" for index in sorted(indices) if indices[index] > 1]
        if twice:
            yield Problem(
                message=f"there are several reports of shard {_few(twice)}; give every job a shard "
                "and every upload a name of its own"
            )
        absent = [f"{index}/{total}" for index in range(1, total + 1) if index not in indices]
        if absent:
            yield Problem(
                message=f"there is no report of shard {_few(absent)}; run its job again, and let "
                "every job upload its report even where it fails"
            )


def _other_plans(reports: Sequence[Report], names: Sequence[str] | None) -> Iterator[Problem]:
    """Shards of another plan than that of ``names``, which may have left models to nobody."""
    others = [
        _label(each)
        for each in reports
        if names is not None
        and each.shard is not None
        and each.shard.count <= MAX_SHARDS
        and each.shard.plan not in (None, plan_of(names, each.shard.count))
    ]
    if others:
        yield Problem(
            message=f"{_few(others)}: of a plan for other models than these; let all jobs select the "
            "same models of the same manifest"
        )


def _uncovered(reports: Sequence[Report], names: Sequence[str] | None) -> Iterator[Problem]:
    """What is wrong with shards that name their models; ``names`` are those that there should be."""
    parts = {each.shard: each for each in reports if each.shard and each.shard.members is not None}
    if not parts:
        return
    if any(each.shard and each.shard.members is None for each in reports):
        yield Problem(
            message="some shards were planned with durations and some without; run all jobs of one "
            "plan again"
        )
        return
    for shard, report in parts.items():
        lacking = set(shard.members or ()) - {model.name for model in report.models}
        if lacking and not report.problems:
            yield Problem(
                message=f"{_label(report)} has no result for {_few(map(quote, sorted(lacking)))}; "
                "run its job again"
            )
    covered = Counter(name for shard in parts for name in shard.members or ())
    twice = [quote(name) for name, times in covered.items() if times > 1]
    if twice:
        yield Problem(
            message=f"{_few(twice)} is in several shards; use the shards of one plan only"
        )
    if names is None:
        return
    gaps = [quote(name) for name in names if name not in covered]
    if gaps and len(parts) == max(shard.count for shard in parts):
        yield Problem(
            message=f"{_few(gaps)} is in no shard of the plan; plan and run all jobs again"
        )
    unknown = [quote(name) for name in covered if name not in set(names)]
    if unknown:
        yield Problem(
            message=f"the plan has {_few(unknown)}, which is no model here; plan and run all jobs "
            "at the same commit, with the same models selected"
        )


def _disagreements(reports: Sequence[Report], manifest: ManifestInfo | None) -> Iterator[Problem]:
    digests = _where(reports, lambda report: report.manifest.sha256)
    if len(digests) > 1:
        yield Problem(
            message=f"the reports are of different manifests: {_listed(digests)}; run all jobs at "
            "the same commit"
        )
    others = [
        _label(each) for each in reports if manifest and each.manifest.sha256 != manifest.sha256
    ]
    if manifest is not None and others:
        yield Problem(
            message=f"verified with another manifest than this: {_few(others)}; run all jobs at "
            "the same commit",
            file=manifest.path,
        )
    for name in _VERSIONS:
        versions = _where(reports, partial(_version, name))
        if len(versions) > 1:
            yield Problem(
                message=f"{name} is not the same everywhere: {_listed(versions)}; run all jobs in "
                "the same image"
            )


def _doubled(reports: Sequence[Report]) -> Iterator[Problem]:
    results = Counter(model.name for report in reports for model in report.models)
    twice = [quote(name) for name in results if results[name] > 1]
    if twice:
        yield Problem(
            message=f"there are several results for {_few(twice)}, of which the worst counts; "
            "merge the reports of one plan only, each once"
        )


def _ordered(models: Sequence[ModelResult], names: Sequence[str] | None) -> tuple[ModelResult, ...]:
    order = {name: index for index, name in enumerate(names or ())}

    def key(model: ModelResult) -> tuple[int, bool, int, str]:
        index = order.get(model.name, len(order))
        return index, model.line is None, model.line or 0, model.name

    return tuple(sorted(models, key=key))


def _environment(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the first value of each key; words that differ are listed, as the CPUs' may."""
    seen: dict[str, list[Any]] = {}
    for report in reports:
        for key, value in report.environment.items():
            values = seen.setdefault(key, [])
            if value not in values:
                values.append(value)
    return {
        key: ", ".join(values)
        if len(values) > 1 and all(isinstance(value, str) for value in values)
        else values[0]
        for key, values in sorted(seen.items())
    }


def _weakest(boxes: Sequence[Sandbox | None]) -> Sandbox | None:
    """Return what every part was kept from; a part that says nothing was kept from nothing."""
    if not any(boxes):
        return None
    known = [box or Sandbox(level="off") for box in boxes]
    weakest = max(known, key=lambda box: _LEVELS.index(box.level))
    return Sandbox(
        level=weakest.level,
        uid=weakest.uid,
        landlock=min(box.landlock for box in known),
        seccomp=all(box.seccomp for box in known),
        missing=_united(name for box in known for name in box.missing),
    )


def _version(name: str, report: Report) -> str | None:
    value = report.environment.get(name)
    return value if value is None or isinstance(value, str) else type(value).__name__


def _label(report: Report) -> str:
    shard = report.shard
    return (
        f"shard {format_int(shard.index)}/{format_int(shard.count)}"
        if shard
        else "a report of no shard"
    )


def _where(
    reports: Sequence[Report], value: Callable[[Report], str | None]
) -> dict[str, list[str]]:
    """Return the reports that say each thing; one that says nothing contradicts nobody."""
    labels: dict[str, list[str]] = {}
    for report in reports:
        text = value(report)
        if text is not None:
            labels.setdefault(text, []).append(_label(report))
    return labels


def _listed(labels: dict[str, list[str]]) -> str:
    return "; ".join(f"{quote(value)} in {_few(where)}" for value, where in labels.items())


def _few(values: Iterable[str]) -> str:
    return listed(values, _SHOWN)


def _united(values: Iterable[_H]) -> tuple[_H, ...]:
    return tuple(dict.fromkeys(values))
