"""The mistakes of a manifest, each a line that says where, what and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onnx_gate.errors import UserError

Key = str | int
Keys = tuple[Key, ...]


@dataclass(frozen=True, order=True)
class Location:
    """A position in the manifest; the first line and the first column are 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """One mistake; ``path`` is dotted and empty where the mistake is the file's."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        return where + (f"{self.path}: {self.message}" if self.path else self.message)


@dataclass(frozen=True)
class Mistake:
    """What is wrong with the value at ``path``, before it has a place.

    ``at_key`` says that the last key itself is wrong: it has the place, its mapping the blame.
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

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: its likeness, or all that is known."""
    names = sorted(set(known))
    folded = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower()[:100], list(folded), n=1, cutoff=0.6)
    if close:
        return f"; did you mean {quote(folded[close[0]])}?"
    if not names:
        return "; none is defined"
    shown = ", ".join(quote(each) for each in names[:20])
    return f"; known: {shown}" + (", ..." if len(names) > 20 else "")


def quote(text: object, limit: int = 60) -> str:
    """A user's text for one line of a message: in quotes, shortened, nothing unprintable."""
    shown = repr(str(text))
    return shown if len(shown) <= limit else f"{shown[: limit - 4]}...{shown[0]}"


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
