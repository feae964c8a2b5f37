"""The errors that a user can cause: each is a sentence with a remedy, shown without a traceback."""

from __future__ import annotations

from typing import Any


class UserError(Exception):
    """Something that the user did, in the manifest, the model or the call."""


class GateError(UserError):
    """Why one model cannot be verified.

    ``kind`` is an error kind of the report (``build``, ``export``, ``inspect``, ``runtime``,
    ``unverified``) and ``code`` an entry of the catalogue of findings. ``source`` is the user's file
    (relative to the manifest's folder) and line that it comes from, where the error that it is
    raised from does not say. ``remedy`` is what to do about this one, empty where the catalogue says
    as much. ``changes`` are keys below the model's entry in the manifest with what they have to be,
    where that was found by trying, is what the remedy asks for (``export``), or is the state of a
    model that has to become its inputs, and ``line`` is that of the manifest which they are about.
    ``otherwise`` is what is left to do where the ``changes`` do not help.
    ``data`` holds as values what the message says: ``operator`` and ``dtypes`` that an engine
    has no kernel for, and the ``engine`` and its ``provider``; whether it is ``recognised`` why an
    export fails.
    """

    def __init__(
        self,
        kind: str,
        code: str,
        message: str,
        source: tuple[str, int] | None = None,
        remedy: str = "",
        changes: tuple[tuple[str, object], ...] = (),
        line: int | None = None,
        otherwise: str = "",
    ) -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.kind = kind
        self.code = code
        self.message = message
        self.source = source
        self.remedy = remedy
        self.changes = changes
        self.line = line
        self.otherwise = otherwise
        self.data: dict[str, Any] = {}


def unwritten(place: object, error: OSError, instead: str) -> UserError:
    """Return what to raise where a file or folder cannot be written, with what to do ``instead``."""
    return UserError(f"{place}: cannot be written: {error.strerror or error}; {instead}")
