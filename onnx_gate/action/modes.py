"""Which mode, from what: what a run of the action does, decided before it does any of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnx_gate.action.action_inputs import Mode

Source = Literal["none", "models", "shards", "artifact", "folder"]
"""Where the report comes from.

``models`` are verified now; ``shards`` are reports of other jobs of this run; an ``artifact`` is that
of the run that a ``workflow_run`` event is about; ``folder`` is a report that an earlier step wrote;
``none`` is a plan, which has a report only where there is something wrong.
"""

Annotated = Literal["everything", "run", "nothing"]
"""What annotations are about: only the ``run`` where the shards have annotated their models."""


@dataclass(frozen=True)
class Work:
    """What a run of the action does: ``asks_github`` says whether it may talk to GitHub."""

    source: Source
    asks_github: bool
    annotated: Annotated


def work_of(mode: Mode, *, of_another_run: bool) -> Work:
    """Return what ``mode`` means; ``of_another_run``: for an event ``workflow_run``, with a token."""
    if mode == "plan":
        return Work("none", asks_github=False, annotated="everything")
    if mode in ("all", "verify"):
        return Work("models", asks_github=mode == "all", annotated="everything")
    if mode == "report":
        return Work("shards", asks_github=True, annotated="run")
    return Work("artifact" if of_another_run else "folder", asks_github=True, annotated="nothing")
