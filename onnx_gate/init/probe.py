"""Runs in a worker: build the target, and try what its ``forward`` takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.init.calls import CountedCalls, NothingFits
from onnx_gate.init.candidates import attempts, widened
from onnx_gate.init.construct import Construction, NoModel, constructions
from onnx_gate.init.facts import Attempt, Facts, Learned, Note
from onnx_gate.init.look import facts_of
from onnx_gate.init.request import Identity, Request
from onnx_gate.init.varying import vary
from onnx_gate.manifest.nesting import parameters
from onnx_gate.manifest.paths import is_program
from onnx_gate.runtimes.base import first_line
from onnx_gate.runtimes.torch_eager import seed_everything
from onnx_gate.text import listed
from onnx_gate.verify.build import load_object, load_program, raised, remedy_of


def work(request: Request, emit: Callable[[dict[str, Any]], None]) -> None:
    """Try; the message of kind ``result`` has the answer, or why there is none."""
    seed_everything(0)
    try:
        answer = identify(request) if request.identify else learn(request)
    except Exception as error:
        emit({"kind": "result", "error": _sentence(error, request)})
        return
    emit({"kind": "result", "answer": asdict(answer)})


def _sentence(error: Exception, request: Request) -> str:
    if isinstance(error, GateError):  # which begins with the reference
        return first_line(error)
    if isinstance(error, NoModel | NothingFits):
        return f"{request.reference}: {error}"
    told = f"{request.reference}: it raised {raised(error, request.workspace)}"
    return "; ".join(part for part in (told, remedy_of(error)) if part)


def _target(request: Request) -> Any:
    if is_program(request.reference):
        return load_program(request.reference, request.workspace, request.reference).eval()
    return load_object(request.reference, request.workspace, request.reference)


def identify(request: Request) -> Identity:
    """Return which class's calls to record."""
    target = _target(request)
    if isinstance(target, type) and issubclass(target, nn.Module):
        kind: type = target
    else:
        made = next(constructions(target, request.reference, (), request.kwargs))
        kind = type(made.module)
        if isinstance(made.module, torch.jit.ScriptModule):
            return Identity(made.module.original_name, None)
    code = getattr(kind.forward, "__code__", None)  # type: ignore[attr-defined]
    return Identity(kind.__qualname__, code and os.path.realpath(code.co_filename))


def learn(request: Request) -> Learned:
    """Build the target and try what its ``forward`` takes.

    Raises what building it raises, and ``NothingFits`` where nothing was taken.
    """
    target = _target(request)
    failure: Exception | None = None
    for made in constructions(
        target, request.reference, request.args, request.kwargs, request.config
    ):
        module = made.module.eval()
        trial = CountedCalls(module, facts_of(module), dict(request.call), request.given)
        try:
            if request.recorded is None:
                attempt = trial.first(attempts(trial.facts, request.given))
            else:
                attempt = trial.first([_widened(trial.facts, request.recorded)])
            return _described(made, trial, attempt, request)
        except NothingFits as error:
            failure = failure or error
    raise failure or NothingFits(f"{request.reference} could not be built")


def _widened(facts: Facts, attempt: Attempt) -> Attempt:
    guesses = {name: widened(facts, name, guess) for name, guess in attempt.guesses.items()}
    return replace(attempt, guesses=guesses)


def _described(
    made: Construction, trial: CountedCalls, attempt: Attempt, request: Request
) -> Learned:
    notes = [*request.notes, *made.notes]
    if "use_cache" in trial.call and "use_cache" not in request.call:
        notes.append(
            Note("guessed", "use_cache: false, so that one call without a cache is verified")
        )
    attempt, dims, varied = vary(trial, attempt, request.varied, request.given)
    notes += [
        Note("learned", f"{name}: {guess.why}")
        for name, guess in attempt.guesses.items()
        if guess.why
    ]
    notes += varied
    notes += _unknown(trial, attempt)
    return Learned(
        name=trial.facts.name,
        inputs=dict(attempt.guesses),
        dims=dims,
        args=request.args if made.factory is None else (),
        kwargs=made.kwargs if made.factory is None else {},
        call=trial.call,
        factory=made.factory,
        packages=_packages(trial.module),
        notes=tuple(notes),
        tries=trial.count,
    )


def _packages(module: nn.Module) -> tuple[str, ...]:
    """The libraries beside torch that modules come from."""
    roots = {type(part).__module__.partition(".")[0] for part in module.modules()}
    return tuple(
        sorted(roots & {"transformers", "timm", "torchvision", "diffusers", "ultralytics"})
    )


def _unknown(trial: CountedCalls, attempt: Attempt) -> list[Note]:
    notes = []
    for name, guess in attempt.guesses.items():
        if guess.dtype.startswith("float") and guess.range is None:
            notes.append(
                Note(
                    "unknown", f"the range of {name}: write range: [0, 1] if it is one; now normal"
                )
            )
    left = [
        each.name
        for each in trial.facts.parameters
        if each.name.partition(".")[0] not in parameters(attempt.guesses)
        and each.name not in trial.call
    ]
    if left:
        notes.append(
            Note("unknown", f"whether your callers give {listed(left, 6)}: left at the default")
        )
    return notes
