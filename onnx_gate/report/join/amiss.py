"""What is missing among the reports of shards, there twice, or of something else: pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from onnx_gate.report.model import MAX_SHARDS, ManifestInfo, Problem, Report, Run, Shard
from onnx_gate.text import format_int, listed, quote

_VERSIONS = ("python", "torch", "onnx", "onnxruntime")
_SHOWN = 20
_H = TypeVar("_H", bound=Hashable)


def amiss(
    reports: Sequence[Report],
    latest: Sequence[Report],
    names: Sequence[str] | None,
    manifest: ManifestInfo | None,
    run: Run | None,
) -> Iterator[Problem]:
    """Yield what keeps ``latest`` among ``reports`` from being all of one run, as ``merge`` is told."""
    yield from _foreign(reports, run)
    yield from _missing_parts(latest)
    yield from _other_plans(latest, names)
    yield from _uncovered(latest, names)
    yield from _disagreements(latest, manifest)
    yield from _doubled(latest)


def plan_of(names: Sequence[str], count: int) -> str:
    """Return what tells a plan from others: a digest of its models and of the number of its shards."""
    return hashlib.sha256(json.dumps([count, *names]).encode()).hexdigest()[:16]


def is_of(report: Report, run: Run) -> bool:
    """Return whether this run made a report, in this attempt or before a job was run again."""
    made = report.run
    return (
        made is not None
        and (made.id, made.sha) == (run.id, run.sha)
        and made.attempt <= run.attempt
    )


def _foreign(reports: Sequence[Report], run: Run | None) -> Iterator[Problem]:
    """Reports of other runs than ``run``, or of several where it is not known which one counts."""
    if run is not None:
        others = [each for each in reports if not is_of(each, run)]
        if others:
            made = united(f"{_label(each)} of {run_label(each)}" for each in others)
            yield Problem(
                message=f"made by another run than this ({_run_label_of(run)}), and therefore not "
                f"believed: {_few(made)}; let every job of this run upload its report, "
                "and commit none"
            )
        return
    made_by = _where(reports, lambda report: run_label(report) if report.run else None)
    if len(united((each.run.id, each.run.sha) for each in reports if each.run)) > 1:
        yield Problem(
            message=f"the reports are of different runs: {_listed(made_by)}; merge those of one"
        )


def run_label(report: Report) -> str:
    """Return which run made a report, in words."""
    return _run_label_of(report.run) if report.run is not None else "no run"


def _run_label_of(run: Run) -> str:
    return f"run {format_int(run.id)} at {quote(run.sha[:7])}"


def _missing_parts(reports: Sequence[Report]) -> Iterator[Problem]:
    if not reports:
        yield Problem(message="there is no report to merge; see why no job has written one")
    shards = [report.shard for report in reports if report.shard is not None]
    if len(reports) > 1 and len(shards) < len(reports):
        yield Problem(
            message=f"{len(reports) - len(shards)} of {len(reports)} reports are of no shard; "
            "merge the reports of one plan only, each verified with --shard"
        )
    counts = united(shard.count for shard in shards)
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
    covered = Counter(unit for shard in parts for unit in _units(shard))
    twice = united(quote(unit[0]) for unit, times in covered.items() if times > 1)
    if twice:
        yield Problem(
            message=f"{_few(twice)} is in several shards; use the shards of one plan only"
        )
    if names is None:
        return
    planned = united(name for name, *_ in covered)
    gaps = [quote(name) for name in names if name not in planned]
    if gaps and len(parts) == max(shard.count for shard in parts):
        yield Problem(
            message=f"{_few(gaps)} is in no shard of the plan; plan and run all jobs again"
        )
    unknown = [quote(name) for name in planned if name not in set(names)]
    if unknown:
        yield Problem(
            message=f"the plan has {_few(unknown)}, which is no model here; plan and run all jobs "
            "at the same commit, with the same models selected"
        )


def _units(shard: Shard) -> Iterator[tuple[str, int, int]]:
    """Yield what a shard has of each of its models: which of how many parts, 1 of 1 where it has all."""
    divided = {each.name: (each.index, each.count) for each in shard.divided}
    for name in shard.members or ():
        yield name, *divided.get(name, (1, 1))


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
    results = Counter(
        (model.name, model.portion and (model.portion.index, model.portion.count))
        for report in reports
        for model in report.models
    )
    names = Counter(name for name, _ in results)
    whole = {name for name, portion in results if portion is None and names[name] > 1}
    twice = united(quote(n) for (n, p), times in results.items() if times > 1 or n in whole)
    if twice:
        yield Problem(
            message=f"there are several results for {_few(twice)}, of which the worst counts; "
            "merge the reports of one plan only, each once"
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


def united(values: Iterable[_H]) -> tuple[_H, ...]:
    """Return values in order, each once."""
    return tuple(dict.fromkeys(values))
