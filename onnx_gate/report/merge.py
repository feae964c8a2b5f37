"""The reports of the shards as one; where a part of them is not there, that is an error."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from onnx_gate.errors import UserError
from onnx_gate.gate.run import count, overall
from onnx_gate.gate.shards import MAX_SHARDS
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ManifestInfo, ModelResult, Problem, Report, Sandbox, Verdict
from onnx_gate.report.summary import format_int
from onnx_gate.text import quote

REPORT = "report.json"
_VERSIONS = ("python", "torch", "onnx", "onnxruntime")
_LEVELS = ("full", "partial", "none", "off")
_VERDICTS: tuple[Verdict, ...] = ("pass", "diverged", "error")
_SHOWN = 20
_H = TypeVar("_H", bound=Hashable)


def find_reports(paths: Iterable[Path], output: Path | None = None) -> list[Path]:
    """Return the files among ``paths``, and for each folder every ``report.json`` below it.

    Sorted within a folder, each file once, and without the one that ``output`` has from an earlier
    merge. A folder without any report stays in the list.
    """
    own = os.path.realpath(output / REPORT) if output is not None else None
    found: dict[str, Path] = {}
    for path in paths:
        files = [path]
        if os.path.isdir(path):
            below = sorted(each for each in path.rglob(REPORT) if not os.path.isdir(each))
            files = [each for each in below if os.path.realpath(each) != own] or [path]
        for file in files:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def merge_files(
    paths: Iterable[Path], names: Sequence[str] | None = None, manifest: ManifestInfo | None = None
) -> Report:
    """Read and merge reports; a path without a valid one is a problem of the merged report."""
    reports: list[Report] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            if os.path.isdir(path):
                raise UserError(f"{path}: no {REPORT} in this folder")
            reports.append(read_report(path))
        except UserError as error:
            problems.append(Problem(message=f"{error}; run the job that writes it again"))
    merged = merge(reports, names, manifest)
    if not problems:
        return merged
    return merged.model_copy(update={"verdict": "error", "problems": (*problems, *merged.problems)})


def merge(
    reports: Sequence[Report],
    names: Sequence[str] | None = None,
    manifest: ManifestInfo | None = None,
) -> Report:
    """Return one report of all models in ``reports``, in the manifest's order.

    ``names`` are the models that there should be, in order, and ``manifest`` is what the reports
    should be of. Whatever is missing, there twice, or of another manifest or environment is a
    problem, and the verdict then is ``error``; no model's result is ever left out.
    """
    models = _ordered([model for report in reports for model in report.models], names)
    problems = _united(
        [
            *(problem for report in reports for problem in report.problems),
            *_missing_parts(reports),
            *_uncovered(reports, len(names) if names is not None else None),
            *_disagreements(reports, manifest),
            *_missing_models(models, names),
        ]
    )
    verdicts = [overall(models), *(report.verdict for report in reports)]
    baselines = _united(report.baseline for report in reports)
    notes = _united(note for report in reports for note in report.notes)
    if len(baselines) > 1:
        notes += ("the shards were compared with different baselines",)
    return Report(
        verdict="error" if problems else max(verdicts, key=_VERDICTS.index),
        counts=count(models),
        environment=_environment(reports),
        manifest=manifest or (reports[0].manifest if reports else ManifestInfo(path="", sha256="")),
        models=models,
        problems=problems,
        changes=_united(change for report in reports for change in report.changes),
        baseline=baselines[0] if len(baselines) == 1 else None,
        sandbox=_weakest([report.sandbox for report in reports]),
        notes=notes,
        # The shards run side by side, so that the longest of them is what there was to wait for.
        seconds=max((each.seconds for each in reports if each.seconds is not None), default=None),
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
        found = Counter(shard.index for shard in shards if shard.count == total)
        if total > MAX_SHARDS or max(found) > total:
            yield Problem(
                message=f"shard {format_int(max(found))}/{format_int(total)} is none of at most "
                f"{MAX_SHARDS}; take the shards from `onnx-gate plan`"
            )
            continue
        twice = [f"{index}/{total}" for index in sorted(found) if found[index] > 1]
        if twice:
            yield Problem(
                message=f"there are several reports of shard {_few(twice)}; give every job a shard "
                "and every upload a name of its own"
            )
        absent = [f"{index}/{total}" for index in range(1, total + 1) if index not in found]
        if absent:
            yield Problem(
                message=f"there is no report of shard {_few(absent)}; run its job again, and let "
                "every job upload its report even where it fails"
            )


def _uncovered(reports: Sequence[Report], models: int | None) -> Iterator[Problem]:
    """What is wrong with shards that say which models they have; ``models`` is how many there are."""
    parts = {each.shard: each for each in reports if each.shard and each.shard.members is not None}
    if not parts:
        return
    if any(each.shard and each.shard.members is None for each in reports):
        yield Problem(
            message="some shards were planned with durations and some without; run all jobs of one "
            "plan again"
        )
        return
    sizes = _united(len(shard.members or "") for shard in parts)
    covered = twice = 0
    for shard, report in parts.items():
        bits = int(shard.members or "", 16)
        covered, twice = covered | bits, twice | (covered & bits)
        if bits.bit_count() != len(report.models) and not report.problems:
            yield Problem(
                message=f"{_label(report)} was to verify {bits.bit_count()} models, and has "
                f"results of {len(report.models)}; run its job again"
            )
    if len(sizes) > 1 or (models is not None and sizes[0] != max(1, -(-models // 4))):
        yield Problem(
            message="the shards are of plans for other models than these; plan and run all jobs at "
            "the same commit, with the same models selected"
        )
        return
    if twice:
        yield Problem(
            message=f"{_places(twice)} is in several shards; use the shards of one plan only"
        )
    total = covered.bit_length() if models is None else models
    gaps = ((1 << total) - 1) & ~covered
    if gaps and len(parts) == max(shard.count for shard in parts):
        yield Problem(
            message=f"{_places(gaps)} is in no shard of the plan; plan and run all jobs again"
        )
    if covered >> total:
        yield Problem(
            message="the plan has more models than there are; plan and run all jobs at the same "
            "commit, with the same models selected"
        )


def _places(bits: int) -> str:
    places = [place for place in range(bits.bit_length()) if bits >> place & 1]
    return f"model {_few(str(place + 1) for place in places)} of the manifest's order"


def _disagreements(reports: Sequence[Report], manifest: ManifestInfo | None) -> Iterator[Problem]:
    digests = _where(reports, lambda report: report.manifest.sha256)
    if len(digests) > 1:
        yield Problem(
            message=f"the reports are of different manifests: {_told(digests)}; run all jobs at "
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
                message=f"{name} is not the same everywhere: {_told(versions)}; run all jobs in "
                "the same image"
            )


def _missing_models(
    models: Sequence[ModelResult], names: Sequence[str] | None
) -> Iterator[Problem]:
    found = Counter(model.name for model in models)
    twice = [quote(name) for name in found if found[name] > 1]
    if twice:
        yield Problem(
            message=f"there are several results for {_few(twice)}; merge the reports of one plan "
            "only, each once"
        )
    absent = [quote(name) for name in names or () if name not in found]
    if absent:
        yield Problem(
            message=f"there is no result for {_few(absent)}; run the jobs of all shards again, "
            "with the same models selected"
        )


def _ordered(models: Sequence[ModelResult], names: Sequence[str] | None) -> tuple[ModelResult, ...]:
    places = {name: place for place, name in enumerate(names or ())}

    def key(model: ModelResult) -> tuple[int, bool, int, str]:
        place = places.get(model.name, len(places))
        return place, model.line is None, model.line or 0, model.name

    return tuple(sorted(models, key=key))


def _environment(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the first value of each key; words that differ are listed, as the CPUs' may."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        for key, value in report.environment.items():
            values = found.setdefault(key, [])
            if value not in values:
                values.append(value)
    return {
        key: ", ".join(values)
        if len(values) > 1 and all(isinstance(value, str) for value in values)
        else values[0]
        for key, values in sorted(found.items())
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
    found: dict[str, list[str]] = {}
    for report in reports:
        said = value(report)
        if said is not None:
            found.setdefault(said, []).append(_label(report))
    return found


def _told(found: dict[str, list[str]]) -> str:
    return "; ".join(f"{quote(said)} in {_few(where)}" for said, where in found.items())


def _few(values: Iterable[str]) -> str:
    every = list(values)
    rest = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + rest


def _united(values: Iterable[_H]) -> tuple[_H, ...]:
    return tuple(dict.fromkeys(values))
