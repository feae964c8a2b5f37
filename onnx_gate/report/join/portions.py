"""Results on parts of a model's blocks as one on the model; of fewer than all parts it is an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.report.join.verdict import worst_verdict
from onnx_gate.report.model import (
    MAX_SHARDS,
    ExportInfo,
    ModelError,
    ModelResult,
    Portion,
    RuntimeResult,
    Stage,
)
from onnx_gate.report.model.decisions import MOST_LISTED, Decisions
from onnx_gate.text import format_int, listed

_SHOWN = 20
# A file that is exported is written on each machine anew.
_COMMITTED = "file"


def with_portions_joined(results: Iterable[ModelResult]) -> Iterator[ModelResult]:
    """Yield results on whole models as they are, and one for each model of which there are parts."""
    parts: dict[str, dict[Portion, ModelResult]] = {}
    for result in results:
        if result.portion is None:
            yield result
            continue
        place = result.portion.model_copy(update={"of": ""})
        known = parts.setdefault(result.name, {}).setdefault(place, result)
        if worst_verdict((known.verdict, result.verdict)) != known.verdict:
            parts[result.name][place] = result
    for own in parts.values():
        yield _joined([own[place] for place in sorted(own, key=lambda each: each.index)])


def _joined(parts: Sequence[ModelResult]) -> ModelResult:
    """Return what parts of one model, in their order, come to."""
    amiss = _amiss(parts)
    errors = [(_label(part), part.error) for part in parts if part.error is not None]
    error = None
    if amiss:
        error = ModelError(kind="unverified", code=codes.OG506.code, message=amiss)
    elif errors:
        where, error = errors[0]
        if len({each.message for _, each in errors}) > 1 or len(errors) < len(parts):
            error = error.model_copy(update={"message": f"{where}: {error.message}"})
    return parts[0].model_copy(
        update={
            "verdict": "error" if amiss else worst_verdict(part.verdict for part in parts),
            "portion": None,
            "cached": all(part.cached for part in parts),
            "error": error,
            "stages": tuple(_stages(parts)),
            "seconds": _sum(part.seconds for part in parts),
            "peak_memory": max((p.peak_memory for p in parts if p.peak_memory), default=None),
            "export": next((part.export for part in parts if part.export is not None), None),
            "findings": tuple(_findings(parts)),
            "checks": tuple(check for part in parts for check in part.checks),
            "runtimes": tuple(_runtimes(parts)),
            "diagnosis": next((p.diagnosis for p in parts if p.diagnosis is not None), None),
            "decisions": _decisions([p.decisions for p in parts if p.decisions is not None]),
            "weights": next((part.weights for part in parts if part.weights is not None), None),
        }
    )


def _amiss(parts: Sequence[ModelResult]) -> str:
    """Return why these are not all parts of one model, and what to do, or ''."""
    portions = [part.portion for part in parts if part.portion is not None]
    counts = {portion.count for portion in portions}
    if len(counts) > 1:
        several = listed(map(format_int, sorted(counts)), _SHOWN)
        return f"its blocks were divided in {several} parts; run all jobs of one plan again"
    count, there = max(counts), {portion.index for portion in portions}
    every = set(range(1, min(count, MAX_SHARDS) + 1))
    if count > MAX_SHARDS or not there <= every:
        return f"its blocks have a part that is none of at most {MAX_SHARDS}; plan and run all jobs again"
    if there != every:
        return (
            f"no report has part {listed(sorted(every - there), _SHOWN)} of {count} of its blocks; run the "
            "job that was to verify it again"
        )
    if len({portion.of for portion in portions if portion.of}) > 1 or len(_files(parts)) > 1:
        return (
            "its parts were not of the same model, weights and file; give all jobs the same commit, the "
            "same weights and the same image"
        )
    return ""


def _files(parts: Sequence[ModelResult]) -> set[str]:
    """Return what tells the files of the parts from each other."""
    files = [part.export for part in parts if part.export is not None]
    return {file.model_dump_json(exclude=_anew(file)) for file in files}


def _anew(file: ExportInfo) -> set[str]:
    return set() if file.exporter == _COMMITTED else {"files", "bytes"}


def _label(part: ModelResult) -> str:
    assert part.portion is not None
    return f"part {format_int(part.portion.index)} of {format_int(part.portion.count)}"


def _decisions(parts: Sequence[Decisions]) -> Decisions | None:
    """Return what the decisions of all parts come to; each part has counted its own."""
    if not parts:
        return None
    never = tuple(each for part in parts for each in part.never)
    return Decisions(
        seen=sum(part.seen for part in parts),
        of=sum(part.of for part in parts),
        before=sum(part.before for part in parts),
        compared=sum(part.compared for part in parts),
        never=never[:MOST_LISTED],
    )


def _sum(seconds: Iterable[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return round(sum(known), 3) if known else None


def _stages(parts: Sequence[ModelResult]) -> Iterator[Stage]:
    every: dict[str, list[Stage]] = {}
    for part in parts:
        for stage in part.stages:
            every.setdefault(stage.name, []).append(stage)
    for name, stages in every.items():
        seconds = round(sum(stage.seconds for stage in stages), 4)
        yield Stage(name=name, seconds=seconds, times=sum(stage.times for stage in stages))


def _findings(parts: Sequence[ModelResult]) -> Iterator[Finding]:
    """Yield each finding once; a waiver was not needed where no part has needed it."""
    for finding in dict.fromkeys(finding for part in parts for finding in part.findings):
        unneeded = finding.code == codes.OG602.code
        if not unneeded or all(finding in part.findings for part in parts):
            yield finding


def _runtimes(parts: Sequence[ModelResult]) -> Iterator[RuntimeResult]:
    every: dict[str, RuntimeResult] = {}
    for runtime in (each for part in parts for each in part.runtimes):
        before = every.get(runtime.runtime, runtime.model_copy(update={"seconds": 0.0}))
        seconds = round(before.seconds + runtime.seconds, 4)
        every[runtime.runtime] = before.model_copy(
            update={"seconds": seconds, "error": before.error or runtime.error}
        )
    yield from every.values()
