"""Why a model failed, in lines of plain text: for formats that have no room for more than text."""

from __future__ import annotations

from pathlib import PurePosixPath

from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.report.story import diagnosed, locations, precision, sentence
from onnx_gate.report.story.command import replay_command, run_command
from onnx_gate.report.story.summary import failing, outcome
from onnx_gate.report.story.versus import change_sentence, output_changes
from onnx_gate.report.story.view import View
from onnx_gate.text import format_int, plain

_LINE = 1000
_LINES = 40


def explain(
    model: ModelResult, report: Report, check: Check | None = None, manifest: str | None = None
) -> list[str]:
    """Return the sentence about a model, or one ``check`` of it, and everything that explains it.

    Then the message and the end of the log of an error, how the model stands against the baseline,
    and the commands that show it again. ``manifest`` is the manifest's path in the repository where
    that is not the report's.
    """
    manifest = manifest or report.manifest.path
    lines = [str(sentence.of_model(model, manifest, check))]
    if model.error is not None:
        message = model.error.message.splitlines()
        told = bool(message) and plain(message[0]) in lines[0]
        lines += [f"{model.error.kind}: {model.error.code}", *message[told:][:_LINES]]
    elif check is None:
        lines.append(outcome(model))
    if model.diagnosis is not None:
        lines += of_diagnosis(model.diagnosis, manifest)
    if model.precision is not None:
        lines += precision.lines(model.precision)
    if report.baseline is not None and check is None:
        lines += [change_sentence(model), *map(str, output_changes(model)[:_LINES])]
    lines += _commands(model, check, report, manifest)
    if model.error is not None:
        log = model.error.log
        lines += [f"log: {PurePosixPath(report.folder, log)}"] if log else []
        lines += [*(f"| {line}" for line in model.error.tail[-_LINES:])]
    shown = [plain(line, _LINE) for line in lines[: 4 * _LINES]]
    return [line for line in shown if line]


def of_diagnosis(diagnosis: Diagnosis, manifest: str) -> list[str]:
    """Return whom it blames, the experiment that decided, the node, the line, and what is open."""
    lines = [diagnosed.sentence(diagnosis)]
    evidence = diagnosed.deciding(diagnosis)
    if evidence is not None:
        lines.append(f"{evidence.experiment}: {evidence.outcome}")
    node = diagnosis.node
    if node is not None:
        where = f" in {node.module}" if node.module else ""
        lines.append(f"first wrong at {node.op_type} {node.name or node.output}{where}")
    if diagnosis.fused_by:
        lines.append(f"the fusion is {diagnosis.fused_by}")
    if diagnosis.source is not None:
        location = locations.of_source(diagnosis.source, manifest)
        file = location.file if location is not None else diagnosis.source.file
        line = format_int(diagnosis.source.line)
        lines.append(f"{file}:{line}: {diagnosis.source.code}")
    return [*lines, diagnosis.note] if diagnosis.note else lines


def _commands(model: ModelResult, check: Check | None, report: Report, manifest: str) -> list[str]:
    view = View(output=report.folder)
    replay = replay_command(model.diagnosis, view)
    bad = [check] if check is not None else failing(model)
    again = run_command(manifest, model, bad, view)
    return [f"replay: {replay}", f"again: {again}"] if replay else [f"again: {again}"]
