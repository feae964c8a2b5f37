"""Calls of a module with guessed arguments: candidates, and what its complaints make of them."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from onnx_gate.init.candidates import MAX_ATTEMPTS
from onnx_gate.init.facts import Attempt, Bound, Facts, Guess, Parameter
from onnx_gate.init.repair import repaired
from onnx_gate.manifest.dimensions import size_of
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.runtimes.torch_eager import Eager

_OTHER_BATCH = 3
# What still hears the same complaint is getting nowhere; several inputs may each have to be put right.
_EXPANSIONS = 4
# What is no tensor, by the annotation of a parameter, or by what options are called.
_NO_TENSOR = re.compile(r"\b(bool|int|float|str|Cache)\b")
_OPTION = re.compile(r"(return|output|use)_\w+")


class NothingFits(Exception):
    """A module takes none of the arguments that were guessed."""


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


class CountedCalls:
    """Calls of one module, counted."""

    def __init__(
        self, module: nn.Module, facts: Facts, call: dict[str, Any], said: Collection[str] = ()
    ) -> None:
        self.module = module
        self.facts = facts
        self.said = frozenset(name.partition(".")[0] for name in said)
        self.count = 0
        self.call = {**_constants(facts), **call}

    def first(self, candidates: Iterable[Attempt]) -> Attempt:
        """Return the first of the candidates that the module takes."""
        shown, complaint, guessed = "", "", frozenset[str]()
        queue = _Queue(candidates)
        fallback: Attempt | None = None
        for attempt in queue:
            refused = self.refusal(attempt)
            if refused is not None:
                if not shown:
                    shown, complaint = f"{_shown(attempt)}: {refused}", refused
                    guessed = frozenset(attempt.guesses)
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
        raise NothingFits(
            f"forward({names}) of {self.facts.name} took none of {self.count} guesses; "
            f"the first was {shown or 'none'}. Say what an input is: --input "
            f"'{self._at_fault(complaint, guessed)}=float32[batch, 16]'"
        )

    def _at_fault(self, complaint: str, guessed: Collection[str]) -> str:
        """Return the parameter that a refusal is about, as far as it says.

        That is the one it names, or where it found nothing (None) one that was not guessed.
        """
        tensors = [each for each in self.facts.parameters if _may_be_tensor(each)]
        open_ones = [each for each in tensors if each.name.partition(".")[0] not in self.said]
        message = complaint.partition(": ")[2]
        named = [
            (match.start(), each)
            for each in open_ones
            if (match := re.search(rf"\b{re.escape(each.name)}\b", message, re.I))
        ]
        if named:
            return min(named, key=lambda each: each[0])[1].name
        lacking = [each for each in open_ones if each.name not in guessed]
        needed = [each for each in open_ones if each.required]
        likely = (*(lacking if "NoneType" in message else ()), *needed, *open_ones, *tensors)
        return next((each.name for each in likely), "x")

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


def _may_be_tensor(parameter: Parameter) -> bool:
    if parameter.required:
        return True
    annotation = parameter.annotation
    other = "Tensor" not in annotation and _NO_TENSOR.search(annotation) is not None
    return not (other or _OPTION.fullmatch(parameter.name))


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
