"""What a worker of ``onnx-gate init`` is asked, and whose calls are recorded; plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx_gate.init.facts import Attempt, Guess, Note


@dataclass(frozen=True)
class Request:
    """What to try: a target, read from ``workspace``, and what its constructor is given.

    ``recorded`` are arguments that a real call had, ``call`` those that are no tensors, ``varied``
    the sizes that dimensions of ``recorded`` had, ``config`` the values of the object that the
    module was made from, ``given`` what the user says of inputs.

    With ``identify`` nothing is tried, and the answer is an ``Identity``.
    """

    reference: str
    workspace: Path
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    recorded: Attempt | None = None
    call: Mapping[str, Any] = field(default_factory=dict)
    varied: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    config: Mapping[str, Any] | None = None
    given: Mapping[str, Guess] = field(default_factory=dict)
    identify: bool = False


@dataclass(frozen=True)
class Identity:
    """A class of modules: its qualified name, and the file of its ``forward`` where that is Python."""

    qualname: str
    file: str | None
