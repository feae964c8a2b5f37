"""The reports of the shards as one; where a part of them is not there, that is an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onnx_gate.errors import UserError
from onnx_gate.findings import codes
from onnx_gate.report.io import MAX_BYTES, read_report
from onnx_gate.report.join.amiss import amiss, is_of, united
from onnx_gate.report.join.portions import with_portions_joined
from onnx_gate.report.join.verdict import VERDICTS, count, overall, worst_verdict
from onnx_gate.report.model import (
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

_LEVELS = ("full", "partial", "none", "off")


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
    made is not believed. Parts of a model's blocks are joined where all are there. A model without a
    result is an error by name; of several results the worst counts. Whatever is missing, there twice,
    or of another manifest, run or environment is a problem, and the verdict then is ``error``.
    """
    own = [report for report in reports if run is None or is_of(report, run)]
    latest = _latest(own)
    every = with_portions_joined(model for report in latest for model in report.models)
    results = _worst_by_name(every)
    lost = [_lost(name) for name in names or () if name not in results]
    models = _ordered([*results.values(), *lost], names)
    problems = united(
        [
            *(problem for report in latest for problem in report.problems),
            *amiss(reports, latest, names, manifest, run),
        ]
    )
    verdicts = [overall(models), *(report.verdict for report in latest)]
    baselines = united(report.baseline for report in latest)
    commits = united(report.commit for report in latest)
    notes = united(note for report in latest for note in report.notes)
    if len(baselines) > 1:
        notes += ("the shards were compared with different baselines",)
    return Report(
        verdict="error" if problems else worst_verdict(verdicts),
        counts=count(models),
        environment=_environment(latest),
        manifest=manifest or (latest[0].manifest if latest else ManifestInfo(path="", sha256="")),
        models=models,
        problems=problems,
        changes=united(change for report in latest for change in report.changes),
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
    late = any(each.out_of_time for each in found)
    return found[0].model_copy(update={"answers": answers, "runs": runs, "out_of_time": late})


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
        missing=united(name for box in known for name in box.missing),
    )
