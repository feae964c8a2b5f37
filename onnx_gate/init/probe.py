"""Runs in a worker: build the target, and try what its ``forward`` takes."""

from __future__ import annotations

import heapq
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.init.candidates import MAX_ATTEMPTS, attempts, widened
from onnx_gate.init.construct import Construction, NoModel, constructions
from onnx_gate.init.facts import Attempt, Bound, Facts, Guess, Learned, Note
from onnx_gate.init.look import facts_of
from onnx_gate.init.repair import repaired
from onnx_gate.init.request import Identity, Request
from onnx_gate.manifest import InputSpec
from onnx_gate.manifest.dimensions import is_computed, names_of, size_of
from onnx_gate.manifest.nesting import parameters
from onnx_gate.manifest.paths import is_program
from onnx_gate.manifest.sizes import SIZES, roles
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.runtimes.torch_eager import Eager, seed_everything
from onnx_gate.text import listed
from onnx_gate.verify.build import load_object, load_program, raised, remedy_of

_LADDER = (1, 2, 3, 5, 7, 8, 16, 17, 32, 48, 64, 96, 100, 128, 160, 192, 224, 256, 288, 320, 400)
_ENOUGH = 3
_OTHER_BATCH = 3
# What still hears the same complaint is getting nowhere; several inputs may each have to be put right.
_EXPANSIONS = 4
_TOGETHER = ("batch", "height", "width", "nodes")


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
    if isinstance(error, NoModel | _NothingFits):
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


class _NothingFits(Exception):
    pass


def learn(request: Request) -> Learned:
    """Build the target and try what its ``forward`` takes.

    Raises what building it raises, and ``_NothingFits`` where nothing was taken.
    """
    target = _target(request)
    failure: Exception | None = None
    for made in constructions(
        target, request.reference, request.args, request.kwargs, request.config
    ):
        module = made.module.eval()
        trial = _CountedCalls(module, facts_of(module), dict(request.call))
        try:
            if request.recorded is None:
                attempt = trial.first(attempts(trial.facts, request.given))
            else:
                attempt = trial.first([_widened(trial.facts, request.recorded)])
            return _described(made, trial, attempt, request)
        except _NothingFits as error:
            failure = failure or error
    raise failure or _NothingFits(f"{request.reference} could not be built")


def _widened(facts: Facts, attempt: Attempt) -> Attempt:
    guesses = {name: widened(facts, name, guess) for name, guess in attempt.guesses.items()}
    return replace(attempt, guesses=guesses)


class _Queue(Iterator[Attempt]):
    """Candidates in their order, and what complaints make of them: bold repairs after all candidates."""

    def __init__(self, candidates: Iterable[Attempt]) -> None:
        self._candidates = iter(candidates)
        self._repairs: list[tuple[int, int, Attempt]] = []
        self._seen: set[str] = set()
        self._complaints: Counter[str] = Counter()
        self._left = MAX_ATTEMPTS

    def __next__(self) -> Attempt:
        """Return the next; raises ``StopIteration``."""
        if not self._repairs or self._repairs[0][0] > 0:
            for attempt in self._candidates:
                return attempt
        if not self._repairs or not self._left:
            raise StopIteration
        self._left -= 1
        return heapq.heappop(self._repairs)[2]

    def repair(self, attempt: Attempt, complaint: str) -> None:
        """Try later what ``complaint`` says should be tried instead, once each."""
        self._complaints[complaint] += 1
        if self._complaints[complaint] > _EXPANSIONS:
            return
        for bold, other in repaired(attempt, complaint):
            if repr(other) not in self._seen:
                self._seen.add(repr(other))
                heapq.heappush(self._repairs, (bold, len(self._seen), other))


class _CountedCalls:
    """Calls of one module, counted."""

    def __init__(self, module: nn.Module, facts: Facts, call: dict[str, Any]) -> None:
        self.module = module
        self.facts = facts
        self.count = 0
        self.call = {**_constants(facts), **call}

    def first(self, candidates: Iterable[Attempt]) -> Attempt:
        """Return the first of the candidates that the module takes."""
        shown = ""
        queue = _Queue(candidates)
        fallback: Attempt | None = None
        for attempt in queue:
            refused = self.refusal(attempt)
            if refused is not None:
                shown = shown or f"{_shown(attempt)}: {refused}"
                queue.repair(attempt, refused)
            elif "batch" not in attempt.sizes or self.takes(attempt, {"batch": _OTHER_BATCH}):
                return attempt
            else:  # one that was broadcast, perhaps
                fallback = fallback or attempt
        if fallback is not None:
            return fallback
        names = ", ".join(
            each.name + (f": {each.annotation}" if each.annotation else "")
            for each in self.facts.parameters
        )
        raise _NothingFits(
            f"forward({names}) of {self.facts.name} took none of {self.count} guesses; "
            f"the first was {shown or 'none'}. Say what an input is: --input "
            f"'{self.facts.parameters[-1].name if self.facts.parameters else 'x'}=float32[batch, 16]'"
        )

    def refusal(self, attempt: Attempt) -> str | None:
        """Return why the module refuses the arguments; ``None`` where it takes them."""
        return self.run(attempt)[1]

    def run(self, attempt: Attempt) -> tuple[tuple[tuple[int, ...], ...], str | None]:
        """Return the shapes of the outputs, and why there are none."""
        self.count += 1
        generator = np.random.default_rng(0)
        try:
            arrays = {
                name: draw(guess, attempt.sizes, generator)
                for name, guess in attempt.guesses.items()
            }
            eager = Eager(self.module, tuple(arrays), None, self.call)
            outputs = eager.run(arrays)
        except Exception as error:
            return (), f"{type(error).__name__}: {first_line(error)}"
        return tuple(np.shape(array) for array in outputs.arrays), None

    def takes(self, attempt: Attempt, sizes: Mapping[str, int]) -> bool:
        """Return whether the module takes the same arguments at other sizes."""
        return self.refusal(replace(attempt, sizes={**attempt.sizes, **sizes})) is None


def draw(guess: Guess, sizes: Mapping[str, int], generator: np.random.Generator) -> Array:
    """Draw an array as the guess says; what is between 0 and 1 and whole is a mask, all ones."""
    shape = tuple(size_of(dim, sizes) for dim in guess.shape)
    if guess.dtype == "bool":
        return np.ones(shape, bool)
    if guess.range is None:
        return generator.standard_normal(shape).astype(guess.dtype)
    low, high = (_bound(bound, sizes) for bound in guess.range)
    if "int" in guess.dtype:
        if (low, high) == (0, 1):
            return np.ones(shape, guess.dtype)
        return generator.integers(int(low), int(high) + 1, shape).astype(guess.dtype)
    return generator.uniform(low, high, shape).astype(guess.dtype)


def _bound(bound: Bound, sizes: Mapping[str, int]) -> float:
    return size_of(bound, sizes) if isinstance(bound, str) else bound


def _shown(attempt: Attempt) -> str:
    return ", ".join(
        f"{name} {guess.dtype}{[size_of(dim, attempt.sizes) for dim in guess.shape]}"
        for name, guess in attempt.guesses.items()
    )


def _constants(facts: Facts) -> dict[str, Any]:
    names = {each.name for each in facts.parameters}
    return {"use_cache": False} if "use_cache" in names and facts.config.get("use_cache") else {}


def _described(
    made: Construction, trial: _CountedCalls, attempt: Attempt, request: Request
) -> Learned:
    notes = [*request.notes, *made.notes]
    if "use_cache" in trial.call and "use_cache" not in request.call:
        notes.append(
            Note("guessed", "use_cache: false, so that one call without a cache is verified")
        )
    attempt, dims, varied = _vary(trial, attempt, request.varied, request.given)
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


def _unknown(trial: _CountedCalls, attempt: Attempt) -> list[Note]:
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


def _vary(
    trial: _CountedCalls,
    attempt: Attempt,
    seen: Mapping[str, tuple[int, ...]],
    given: Mapping[str, Guess],
) -> tuple[Attempt, dict[str, tuple[int, ...]], list[Note]]:
    """Find which dimensions can vary: fix those that cannot, and list what fits of the others."""
    dims: dict[str, tuple[int, ...]] = {}
    notes: list[Note] = []
    if not seen:
        attempt = _separated(trial, attempt, given)
    shapes, _ = trial.run(attempt)
    kinds = roles(_specs(attempt))
    for name in _names(attempt):
        defaults = {*SIZES[kinds[name]].crossed, *SIZES[kinds[name]].once[:1]}
        base = attempt.sizes[name]
        accepted = _accepted(trial, attempt, name, defaults)
        if name in seen:
            notes.append(Note("learned", f"{name} varied: {_listed(seen[name])} were recorded"))
            if not defaults <= set(accepted):
                dims[name] = tuple(sorted({*seen[name], *accepted})[:4])
            continue
        reason = None
        if not set(accepted) - {base}:
            reason = f"no other size than {base} was taken"
        elif kinds[name] == "pixels" and not _shows(trial, attempt, name, accepted, shapes):
            reason = f"the outputs do not depend on it, though {_listed(accepted)} were taken"
        if reason is not None:
            attempt = _fixed(attempt, name)
            notes.append(Note("learned", f"{name} is {base}: {reason}"))
            continue
        notes.append(Note("learned", f"{name} can vary: {_listed(accepted)} were taken"))
        if not defaults <= set(accepted):
            dims[name] = tuple(accepted)
    return attempt, dims, notes


def _separated(trial: _CountedCalls, attempt: Attempt, given: Mapping[str, Guess]) -> Attempt:
    """Give an input a size of its own where it need not have another's, and nobody said so."""
    for key, guess in attempt.guesses.items():
        if key in given:
            continue
        for name in _names(attempt):
            sharers = [k for k, g in attempt.guesses.items() if name in g.shape]
            if name in _TOGETHER or key not in sharers or _is_mask(guess):
                continue
            # A cache's keys and values grow together.
            kin = [each for each in sharers if _unnumbered(each) == _unnumbered(key)]
            if key != kin[0] or sharers[0] in kin:
                continue
            own = f"{key.replace('.', '_')}_{name}"
            other = replace(
                attempt,
                guesses={
                    **attempt.guesses,
                    **{each: _renamed(attempt.guesses[each], name, own) for each in kin},
                },
                sizes={**attempt.sizes, own: attempt.sizes[name] + 4},
            )
            if trial.refusal(other) is None:
                attempt = other
    return attempt


def _renamed(guess: Guess, name: str, own: str) -> Guess:
    return replace(guess, shape=tuple(own if dim == name else dim for dim in guess.shape))


def _unnumbered(name: str) -> str:
    return re.sub(r"\.\d+", ".", name)


def _is_mask(guess: Guess) -> bool:
    """Return whether an input hides parts of another; what hides nothing is easily ignored."""
    return guess.dtype == "bool" or guess.range == (0, 1)


def _listed(sizes: Iterable[int]) -> str:
    return ", ".join(str(size) for size in sizes)


def _names(attempt: Attempt) -> list[str]:
    names = (n for guess in attempt.guesses.values() for dim in guess.shape for n in names_of(dim))
    return list(dict.fromkeys(names))


def _specs(attempt: Attempt) -> dict[str, InputSpec]:
    return {name: InputSpec(g.dtype, g.shape) for name, g in attempt.guesses.items()}


def _accepted(trial: _CountedCalls, attempt: Attempt, name: str, defaults: set[int]) -> list[int]:
    """The sizes that the module takes: the gate's own, or else some around the first."""
    base = attempt.sizes[name]
    taken = [s for s in sorted(defaults) if s == base or trial.takes(attempt, {name: s})]
    if len(taken) > 1:
        return taken
    near = {s for s in (*_LADDER, base * 2, base + 32, base - 32) if base // 2 <= s <= 2 * base}
    for size in sorted(near - defaults - {base}, key=lambda s: (abs(s - base), s)):
        if len(taken) >= _ENOUGH:
            break
        if trial.takes(attempt, {name: size}):
            taken.append(size)
    return sorted({*taken, base})


def _shows(
    trial: _CountedCalls,
    attempt: Attempt,
    name: str,
    accepted: list[int],
    outputs: tuple[tuple[int, ...], ...],
) -> bool:
    """Return whether the size shows in an output's: an image that is answered by an image."""
    other = next(size for size in accepted if size != attempt.sizes[name])
    shapes, _ = trial.run(replace(attempt, sizes={**attempt.sizes, name: other}))
    return shapes != outputs


def _fixed(attempt: Attempt, name: str) -> Attempt:
    sizes = dict(attempt.sizes)
    size = sizes.pop(name)

    def fix(dim: int | str) -> int | str:
        if name not in names_of(dim):
            return dim
        return size_of(dim, attempt.sizes) if is_computed(dim) else size

    guesses = {
        key: replace(
            guess, shape=tuple(fix(dim) for dim in guess.shape), range=_range(guess, attempt, name)
        )
        for key, guess in attempt.guesses.items()
    }
    return Attempt(guesses, sizes)


def _range(guess: Guess, attempt: Attempt, name: str) -> tuple[Bound, Bound] | None:
    if guess.range is None:
        return None
    low, high = (
        size_of(bound, attempt.sizes)
        if isinstance(bound, str) and name in names_of(bound)
        else bound
        for bound in guess.range
    )
    return low, high
