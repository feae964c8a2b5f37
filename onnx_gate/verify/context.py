"""Where and how a model is verified; plain data, without torch."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from onnx_gate.sandbox.confine import Confinement

EXPORT_NOTES = "exported.json"
"""The file beside an exported graph that says how it came to be."""


HUNG = "hung"
"""What the data of OG406 has where an advisory case gave no answer in time."""


def today() -> datetime.date:
    """Return the day by which waivers end, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date()


@dataclass(frozen=True)
class Context:
    """What verifying needs to know beside the model's entry in the manifest.

    ``workspace`` is the manifest's folder, ``folder`` takes the exported file, ``patterns``
    select cases, ``threads`` is the number of threads of both sides, ``today`` ends waivers.
    ``confinement`` is what the process may open from the first line of the model's code on.
    With ``record`` what the model reads and how its export came to be is written down, with
    ``reuse`` there is an export in ``folder`` to take up. Without ``advise`` the advisory cases are
    left out, as one of them hung in an earlier run.
    """

    workspace: Path
    folder: Path
    patterns: tuple[str, ...] = ()
    threads: int = 1
    confinement: Confinement | None = None
    record: bool = False
    reuse: bool = False
    advise: bool = True
    today: datetime.date = field(default_factory=today)
