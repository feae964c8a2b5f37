"""Which dimensions of the arguments can vary, and which sizes of them the module takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from onnx_gate.init.calls import CountedCalls
from onnx_gate.init.facts import Attempt, Bound, Guess, Note
from onnx_gate.manifest import InputSpec
from onnx_gate.manifest.dimensions import is_computed, names_of, size_of
from onnx_gate.manifest.roles import SIZES, roles

_LADDER = (1, 2, 3, 5, 7, 8, 16, 17, 32, 48, 64, 96, 100, 128, 160, 192, 224, 256, 288, 320, 400)
_ENOUGH = 3
_TOGETHER = ("batch", "height", "width", "nodes")


def vary(
    trial: CountedCalls,
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


def _separated(trial: CountedCalls, attempt: Attempt, given: Mapping[str, Guess]) -> Attempt:
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


def _accepted(trial: CountedCalls, attempt: Attempt, name: str, defaults: set[int]) -> list[int]:
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
    trial: CountedCalls,
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
