"""What runs inside a worker that tries remedies: each in a fork, on a copy, before the gate's judge.

What changes the source is tried against the module as it was written, too: its cases are drawn once,
the changed module answers them in the fork that verifies it, and in another fork the original is asked
and judges those answers by its own rounding. Modules of both never meet in one process, where one
would import what the other has loaded.
"""

from __future__ import annotations

import inspect
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onnx_gate.deadline import Deadline
from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import changed
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.manifest.values.tolerances import Tolerance
from onnx_gate.remedy.candidate import Candidate, Ladder
from onnx_gate.remedy.copy_tree import copy_tree
from onnx_gate.report.io import write_bytes, write_text
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes import isolated
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.asked import AskedModule
from onnx_gate.verify.build import build
from onnx_gate.verify.carried import CarriedCase, packed, unpacked
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.compared import Answers, Asked, Comparer, Setting, Tally
from onnx_gate.verify.context import Context
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inputs.cases import Case, cases
from onnx_gate.verify.prepare import focus_of, prepare
from onnx_gate.verify.reach.explore import Explorer
from onnx_gate.verify.reference.file import with_file_inputs
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.verify.verify import verify
from onnx_gate.workers.forked import run_forked

Emit = Callable[[dict[str, Any]], None]
MADE = "made.onnx"
"""The file that a fresh export has made, in the model's folder."""

_CASES, _ANSWERS = "cases", "answers"
_INDEX = "index.txt"


def work(payload: tuple[ModelSpec, Context, Ladder], emit: Emit) -> None:
    """Try the candidates of one model; a message for each says whether it holds.

    Of each kind, source and settings, none is tried once one has held; and nothing where source has
    been fixed, which leaves no need for another exporter.
    """
    spec, context, ladder = payload
    if context.confinement is not None:
        context.confinement.enter()
    isolated.prepare(context.folder, spec.timeout)
    deadline = Deadline(ladder.seconds)
    trial = context.folder / "trial"
    held: set[bool] = set()
    drawn: bool | None = None
    for number, candidate in enumerate(ladder.candidates):
        of_source = bool(candidate.texts)
        if deadline.left <= 0 or True in held:
            break
        if of_source in held or (of_source and drawn is False):
            continue
        begin = time.perf_counter()
        if of_source and drawn is None:
            _, trouble = run_forked(
                lambda each=candidate: _draw(spec, context, each),  # type: ignore[misc]
                deadline.left,
            )
            drawn = not trouble
            if trouble:
                continue
        answer, _ = run_forked(
            lambda each=candidate: _tried(spec, context, each, trial),  # type: ignore[misc]
            deadline.left,
        )
        if answer.get("holds") and of_source:
            judged, _ = run_forked(
                lambda each=candidate: _unchanged(spec, context, each, trial),  # type: ignore[misc]
                deadline.left,
            )
            answer = {**judged, "holds": bool(judged.get("compared"))}
        holds = bool(answer.get("holds"))
        if holds:
            held.add(of_source)
        emit(
            {
                "kind": "result",
                "number": number,
                "holds": holds,
                "compared": answer.get("compared"),
                "seconds": time.perf_counter() - begin,
            }
        )
        shutil.rmtree(trial, ignore_errors=True)


def _tried(spec: ModelSpec, context: Context, candidate: Candidate, trial: Path) -> dict[str, Any]:
    """Return whether the model is green with a candidate; nothing outside of ``trial`` is changed."""
    torch.set_num_threads(context.threads)
    copy, exported = trial / "tree", trial / "export"
    exported.mkdir(parents=True)
    context = replace(context, folder=exported, record=False, reuse=False)
    spec = _with(spec, candidate)
    if candidate.texts:
        copy_tree(context.workspace, copy, candidate.texts)
        answers = _answering(context.folder.parent.parent / _CASES, trial / _ANSWERS)
        context = replace(context, workspace=copy)
        return {"holds": verify(spec, context, _mute, follow=answers).verdict == "pass"}
    if not candidate.fresh:
        result = verify(spec, context, _mute)
        # What the manifest promises of inputs has to be true of all of them.
        refuses = candidate.kind == "inputs" and any(
            "pytorch" in check.refused for check in result.checks
        )
        return {"holds": result.verdict == "pass" and not refuses}
    made: list[Path] = []

    def keep(result: ModelResult, _: Checker, file: Exported, __: object) -> ModelResult:
        made.extend([file.path] if len(file.info().files) == 1 else [])
        return result

    result = verify(replace(spec, onnx=None), context, _mute, follow=keep)
    if result.verdict != "pass" or not made or spec.onnx is None:
        return {"holds": False}
    kept = exported.parent.parent / MADE
    shutil.copyfile(made[0], kept)
    copy_tree(context.workspace, copy, {spec.onnx: kept})
    again = trial / "again"
    again.mkdir()
    return {
        "holds": verify(spec, replace(context, workspace=copy, folder=again), _mute).verdict
        == "pass"
    }


def _mute(_: dict[str, Any]) -> None:
    """Take a message that is nobody's business."""


def _with(spec: ModelSpec, candidate: Candidate) -> ModelSpec:
    for change in candidate.changes:
        spec = changed(spec, change)
    return spec


def _original(spec: ModelSpec, context: Context, candidate: Candidate) -> torch.nn.Module:
    """Build the module as it is written, called as the changed one is."""
    module = build(spec, context.workspace).module
    return with_states(module, candidate.states) if candidate.states else module


def _draw(spec: ModelSpec, context: Context, candidate: Candidate) -> dict[str, Any]:
    """Write down every case of the module as it is, and those that show more of it.

    Raises ``GateError`` where it cannot be built, takes no input or disagrees with itself: then there
    is no answer that a change of it could leave as it is.
    """
    spec = with_file_inputs(_with(spec, candidate), context.workspace)
    prepared = prepare(spec, context, _original(spec, context, candidate))
    module = AskedModule(spec, prepared.eager, Clock(), {})
    explorer = Explorer(spec, module.watcher)
    folder = context.folder / _CASES
    folder.mkdir()
    every: list[str] = []
    answered = 0
    focus = focus_of(prepared.eager, spec, prepared.sizes)
    drawn = cases(spec, prepared.sizes, context.workspace, focus=focus)
    for case in itertools.chain(drawn, _reached(explorer)):
        asked = module.ask(case)
        if asked.reference is not None:
            answered += 1
            if case.kind != REACHED:
                explorer.learn(case)
        every.append(_put(case, folder, len(every)))
    difference = prepared.agrees_still()
    if difference or not answered:
        raise codes.OG106.error(difference or "the model answers no case")
    write_text(folder / _INDEX, "\n".join(every))
    return {"cases": len(every)}


def _reached(explorer: Explorer) -> Iterator[Case]:
    """Yield further cases as ``explorer`` knows of them when it is asked, which is later."""
    yield from explorer.cases()


def _answering(cases_: Path, folder: Path) -> Callable[..., ModelResult]:
    """Return what has the changed module answer the original's cases, and writes that down."""

    def follow(result: ModelResult, checker: Checker, *_: object) -> ModelResult:
        folder.mkdir()
        every = []
        for number, (case, _asked) in enumerate(_got(cases_)):
            answer, refused = _answer(checker.setting.eager, case)
            arrays = dict(enumerate(answer or ()))
            about = replace(case, arrays={str(n): array for n, array in arrays.items()})
            every.append(_put(about, folder, number, refused))
        write_text(folder / _INDEX, "\n".join(every))
        return result

    return follow


def _answer(eager: Eager, case: Case) -> Answers:
    try:
        return list(eager.run(case.arrays).arrays), None
    except Refusal as refusal:
        return None, refusal


def _unchanged(
    spec: ModelSpec, context: Context, candidate: Candidate, trial: Path
) -> dict[str, Any]:
    """Return how many answers were held against PyTorch's own: 0 where one of them has changed."""
    spec = with_file_inputs(_with(spec, candidate), context.workspace)
    # By PyTorch's own rounding, whatever the manifest grants a runtime.
    spec = replace(
        spec,
        tolerance=Tolerance(auto=DEFAULT_AUTO),
        outputs=None if spec.outputs is None else dict.fromkeys(spec.outputs),
        runtimes=tuple(replace(each, tolerance=None) for each in spec.runtimes),
        where={},
        waivers=(),
    )
    eager = Eager.of(_original(spec, context, candidate), spec)
    tally: Tally[Any] = Tally()
    setting = Setting(spec=spec, graph_outputs=(), workspace=context.workspace, threads=1)
    module = AskedModule(spec, eager, tally.clock, tally.experience)
    checks: list[Check] = []
    label = spec.runtimes[0].label
    for (case, _), (answer, refused) in zip(
        _got(context.folder / _CASES), _got(trial / _ANSWERS), strict=True
    ):
        asked = module.ask(case)
        said: Answers = (
            (None, refused.refusal) if refused.refusal else (list(answer.arrays.values()), None)
        )
        names = asked.reference.outputs.names if asked.reference is not None else ()
        comparer = Comparer(replace(setting, graph_outputs=names), tally)
        checks += comparer.one(case, label, asked, said)
    settled = Comparer(setting, tally).settled(checks)
    if any(check.verdict == "diverged" and not check.advice for check in settled):
        return {"compared": 0}
    return {"compared": sum(check.verdict == "pass" for check in settled)}


def _put(case: Case, folder: Path, number: int, refused: Refusal | None = None) -> str:
    """Write a case's arrays and return the line about it, with a refusal's words where there is one."""
    why = refused or Refusal("")
    about, data = packed(case, Asked[Any](None, why), f"{number}.npz")
    write_bytes(folder / about.file, data)
    return about.model_dump_json()


def _got(folder: Path) -> Iterator[tuple[Case, Asked[Any]]]:
    for line in (folder / _INDEX).read_text(encoding="utf-8").splitlines():
        about = CarriedCase.model_validate_json(line)
        case, asked = unpacked(about, folder / about.file)
        yield case, asked if str(asked.refusal) else Asked[Any](None)


def with_states(module: nn.Module, names: Sequence[str]) -> nn.Module:
    """Return a module that takes buffers behind the arguments, and returns them behind the results."""
    signature = inspect.signature(module.forward)

    class Explicit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            given = full.bind(self, *args, **kwargs).arguments
            for name in names:
                setattr(self.inner, name, given.pop(name).clone())
            result = self.inner(*list(given.values())[1:])
            states = [getattr(self.inner, name).clone() for name in names]
            return (*(result if isinstance(result, tuple | list) else (result,)), *states)

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    more = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    full = signature.replace(parameters=[own, *signature.parameters.values(), *more])
    Explicit.forward.__signature__ = full  # type: ignore[attr-defined]
    return Explicit().train(module.training)
