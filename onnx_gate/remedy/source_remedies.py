"""Remedies in the source, from the texts of a model's files and the lines that were blamed; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import KeyChange
from onnx_gate.remedy.candidate import Candidate
from onnx_gate.remedy.patterns import STATE
from onnx_gate.remedy.rewrite import rewrites
from onnx_gate.report.model import ModelResult

# The causes that a line of source may have.
_IN_THE_CODE = ("capture", "exporter", "kernel", "undecided")


def blamed(spec: ModelSpec, result: ModelResult) -> dict[str, set[int]]:
    """Return the files that a model's failure may come from, each with the lines that are named.

    Paths are as they were found, relative to the manifest's folder; nothing where no source can help.
    """
    kind = result.error.kind if result.error is not None else None
    blame = result.diagnosis.blame if result.diagnosis is not None else None
    if spec.model is None or spec.onnx is not None:
        return {}
    in_code = kind in ("export", "runtime", "inspect") or blame in _IN_THE_CODE
    if not in_code and not states(result):
        return {}
    named = [(each.file, each.line) for each in result.findings if each.severity == "error"]
    for source in (
        result.diagnosis.source if result.diagnosis is not None else None,
        result.error.source if result.error is not None else None,
    ):
        named += [(source.file, source.line)] if source is not None else []
    found: dict[str, set[int]] = {}
    for file, line in named:
        if file is not None and line is not None and file.endswith(".py"):
            found.setdefault(file, set()).add(line)
    place = spec.model.partition(":")[0]
    if place.endswith(".py"):
        found.setdefault(place, set())
    return found


def states(result: ModelResult) -> tuple[KeyChange, ...]:
    """Return what the state that a model keeps is as its inputs, if that is what it is red for.

    In the order of their names, as in the rewrite.
    """
    error = result.error
    found = error.changes if error is not None and error.kind == "unverified" else ()
    return tuple(KeyChange(each.key, each.value) for each in sorted(found, key=lambda e: e.key))


def sources(
    spec: ModelSpec, result: ModelResult, texts: Mapping[str, str], lines: Mapping[str, set[int]]
) -> Iterator[Candidate]:
    """Yield the rewrites of the texts of files: those of lines that are blamed first, then the model's."""
    target = (spec.model or "").partition(":")[2].partition(".")[0]
    further = states(result)
    for name, text in texts.items():
        for each in rewrites(text, lines.get(name, ()), target):
            if (each.name == STATE) == bool(further):
                yield Candidate("source", further, {name: each.text}, each.name)
