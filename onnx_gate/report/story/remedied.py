"""What is to be said of the remedies of a model: each that held in a sentence, with its patch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx_gate.report.model import ModelResult
from onnx_gate.report.model.remedy import FreshExport, Remedy
from onnx_gate.report.story.audited import flow
from onnx_gate.report.story.owned import undeclared
from onnx_gate.text import counted, format_int, plain

_NAME = 160
REWRITES = {
    "size": "a size that stays in the graph",
    "where": "torch.where for a branch on values",
    "item": "a value that stays a tensor",
    "cond": "torch.cond for a branch on values of which one side refuses the other's",
    "length": "shape[0] for len",
    "double": "float32 for float64",
    "shift": "a division or product for a shift of bits",
    "masked": "torch.where for an assignment by a mask",
    "rows": "take_along_dim for an index of each row",
    "finfo": "the limit of the tensor's own dtype",
    "validated": "validate_args=False",
    "parametrized": "remove_parametrizations",
    "softplus": "softplus for logsigmoid",
    "state": "a state that is an input and an output",
}
"""What a rewrite of the source does, as a part of a sentence, by its name."""


@dataclass(frozen=True)
class TriedRemedy:
    """A sentence without its point, and the patch that it is about, empty where there is none."""

    sentence: str
    patch: str = ""


def tried(model: ModelResult) -> Iterator[TriedRemedy]:
    """Yield what held, and where nothing did, how much was tried."""
    remedies = model.remedies
    if remedies is None:
        return
    for each in remedies.held:
        yield TriedRemedy(f"tried: {_what(each)} holds{_answers(each, model)}", each.patch)
    if remedies.fresh is not None:
        yield TriedRemedy(f"tried: {_seen(remedies.fresh, model)}")
    elif not remedies.held and remedies.tried:
        left = ""
        if remedies.left:
            left = f", and {format_int(remedies.left)} more not for want of time"
        yield TriedRemedy(f"tried: {counted(remedies.tried, 'change')}{left}; none holds")


def _seen(fresh: FreshExport, model: ModelResult) -> str:
    """Say what a fresh export that holds tells of the script that wrote the red one."""
    writer, how = plain(fresh.writer, _NAME), flow(fresh.export)
    found = f"a fresh export with {how} holds, so it is {writer} that exports otherwise"
    dims = undeclared(model)
    return found + (f": it passes no dynamic axes for {dims}" if dims else "")


def _what(remedy: Remedy) -> str:
    if remedy.kind == "fresh export":
        made = f" ({plain(remedy.made, _NAME)})" if remedy.made else ""
        return f"a fresh export{made} in place of {plain(remedy.file, _NAME)}"
    if remedy.kind == "source":
        return f"{REWRITES.get(remedy.rewrite, plain(remedy.rewrite, 60))}{_places(remedy)}"
    parts = (
        f"{plain(change.key.partition('.')[2], _NAME)} with {flow(change.value)}"
        if change.key.startswith("engines.")
        else f"{plain(change.key, _NAME)}: {flow(change.value)}"
        for change in remedy.changes
    )
    return ", ".join(parts)


def _places(remedy: Remedy) -> str:
    places = [f"{plain(e.file, _NAME)}:{format_int(e.line)}" for e in remedy.edits]
    return f" ({', '.join(places[:3])})" if places else ""


def _answers(remedy: Remedy, model: ModelResult) -> str:
    if remedy.compared is None:
        return ""
    answers = counted(remedy.compared, "answer")
    return f", and leaves {answers} of {model.against} as they were but for rounding"
