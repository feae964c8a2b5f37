"""The mistakes of a manifest, each a line that says where, what and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onnx_gate.errors import UserError
from onnx_gate.text import printed, quote

Key = str | int
Keys = tuple[Key, ...]


@dataclass(frozen=True, order=True)
class TextPosition:
    """A position in the manifest; the first line and the first column are 1."""

    line: int
    column: int


@dataclass(frozen=True)
class ManifestProblem:
    """One mistake; ``path`` is dotted and empty where the mistake is the file's."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        return printed(where + (f"{self.path}: {self.message}" if self.path else self.message))


@dataclass(frozen=True)
class Mistake:
    """What is wrong with the value at ``path``, before it has a location.

    ``at_key`` says that the last key itself is wrong: it has the location, its mapping the blame.
    """

    path: Keys
    message: str
    at_key: bool = False

    @property
    def blamed(self) -> Keys:
        """The path that the user is shown."""
        return self.path[:-1] if self.at_key else self.path


class ManifestError(UserError):
    """A manifest that cannot be used, with every problem found, in the file's order."""

    def __init__(self, problems: Iterable[ManifestProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)


def describe(value: Any) -> str:
    """What the user wrote, in words: ``the text 'x'``, ``a list``, ``nothing``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    if isinstance(value, int | float):
        return str(value)
    return "a list" if isinstance(value, list | tuple) else "a mapping"


def missing(key: str) -> str:
    """A key that has to be there is not, and what to write."""
    example = {
        "version": "; add 'version: 1'",
        "models": "; add 'models:' and below it each model by its name",
        "model": "; add 'model: models/resnet.py:build'",
        "inputs": "; add 'inputs:' and below it each input, as in 'image: float32[batch, 3]'",
        "until": "; add 'until: 2027-03-31', the last day of the waiver",
        "reason": "; say why the divergence is accepted",
    }
    return f"the key {quote(key)} is missing{example.get(key, '; add it')}"


def dotted(path: Keys) -> str:
    """``models.resnet18.suites[1]``; a key that is not a plain word is quoted."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            plain = key.replace("_", "a").replace("-", "a").isalnum()
            text += ("." if text else "") + (key if plain else quote(key))
    return text
