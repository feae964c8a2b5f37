"""Why a model failed, in lines of plain text: for formats that have no room for more than text."""

from __future__ import annotations

from pathlib import PurePosixPath

from onnx_gate.report.model import Check
from onnx_gate.report.story import sentence
from onnx_gate.report.story.shell import run_command
from onnx_gate.report.story.story import RunStory, Story
from onnx_gate.text import plain

_LINE = 1000
_LINES = 40


def explain(story: Story, run: RunStory, check: Check | None = None) -> list[str]:
    """Return the sentence about a model, or one ``check`` of it, and everything that explains it.

    Then the message and the end of the log of an error, how the model stands against the baseline,
    and the commands that show it again.
    """
    model, about, again = story.model, story.sentence, story.again
    if check is not None:
        about = sentence.of_model(model, run.manifest, check)
        again = run_command(run.manifest, model, [check], run.view)
    lines = [str(about)]
    if model.error is not None:
        message = model.error.message.splitlines()
        told = bool(message) and plain(message[0]) in lines[0]
        lines += [f"{model.error.kind}: {model.error.code}", *message[told:][:_LINES]]
    elif check is None:
        lines.append(story.outcome)
    lines += [*(story.why.lines if story.why is not None else ()), *story.precision]
    lines += map(str, story.known)
    for each in story.further:
        lines += [f"on {each.diagnosis.runtime}, otherwise: {each.lines[0]}", *each.lines[1:]]
    if run.compared and check is None:
        lines += [story.since, *map(str, story.outputs[:_LINES])]
    lines += [f"replay: {replay}" for replay in story.replays]
    lines += [f"again: {again}"]
    if model.error is not None:
        log = model.error.log
        lines += [f"log: {PurePosixPath(run.view.output, log)}"] if log else []
        lines += [*(f"| {line}" for line in model.error.tail[-_LINES:])]
    shown = [plain(line, _LINE) for line in lines[: 4 * _LINES]]
    return [line for line in shown if line]
