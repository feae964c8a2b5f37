"""Where and how a model is verified; plain data, without torch."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx_gate.report.model import ExportInfo
from onnx_gate.report.model.diagnosis import ReducedHow
from onnx_gate.sandbox.confine import Confinement

EXPORT_NOTES = "exported.json"
"""The file beside an exported graph that says how it came to be."""


ANSWERS = "answers"
"""The folder, of a model's own, of what PyTorch said: it is read where there is no PyTorch."""


HUNG = "hung"
"""What the data of OG406 has where an advisory case gave no answer in time."""


def today() -> datetime.date:
    """Return the day by which waivers end, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date()


MUTANT = "mutant"
"""The kind of the message that says what became of one fault of an audit."""

BEGUN = "begun"
"""The kind of the message that says which fault is tried next: its graph may end the process."""

BLOCK = "block"
"""The kind of the message that has the checks of one block, to be kept for later runs."""

AUDIT_TIMES = 6.0
"""How many times its timeout a model may take where it is audited: all its cases again and again."""


SAMPLE = 40
"""The number of faults that an audit tries where nobody says how many."""


@dataclass(frozen=True)
class AuditRequest:
    """How sharp the gate is to be measured.

    ``sample`` is the number of faults that are tried (0: all of them), ``seed`` draws them.
    ``min_score`` is the share of them that has to be caught, ``None`` for any. ``known`` has what
    became of faults in an earlier call, by their keys. With ``proposals`` it is tried what catches
    those that survive.
    """

    sample: int = SAMPLE
    seed: int = 0
    min_score: float | None = None
    known: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    proposals: bool = True


@dataclass(frozen=True)
class Context:
    """What verifying needs to know beside the model's entry in the manifest.

    ``workspace`` is the manifest's folder, ``folder`` takes the exported file, ``patterns``
    select cases, ``threads`` is the number of threads of both sides, ``today`` ends waivers.
    ``confinement`` is what the process may open from the first line of the model's code on.
    With ``record`` what the model reads and how its export came to be is written down, with
    ``reuse`` there is an export in ``folder`` to take up. Without ``advise`` the advisory cases are
    left out, as one of them hung in an earlier run. ``audit``: faults are seeded once the model has
    passed. ``answers``: what PyTorch says is written down, for machines without it. ``blocks`` is what is
    known of the model's blocks, by keys, ``None`` where nothing is to be kept of them. ``crashes`` has the
    runtimes of which loading the file has ended an earlier process of the model, each with how.
    """

    workspace: Path
    folder: Path
    patterns: tuple[str, ...] = ()
    threads: int = 1
    confinement: Confinement | None = None
    record: bool = False
    reuse: bool = False
    advise: bool = True
    audit: AuditRequest | None = None
    answers: bool = False
    blocks: Mapping[str, Mapping[str, Any]] | None = None
    crashes: Mapping[str, str] = field(default_factory=dict)
    today: datetime.date = field(default_factory=today)


@dataclass(frozen=True)
class Reduced:
    """How a file computes in fewer bits.

    ``dtype`` is that of the quantised values, or of the weights where only these are;
    ``operators`` are those that say so, each with their number. ``model`` is the dtype that the module
    computes in.
    """

    how: ReducedHow
    dtype: str
    operators: Mapping[str, int]
    model: str = "float32"

    @property
    def is_half(self) -> bool:
        """Whether it is floating-point, and only shorter."""
        return self.how == "half"


@dataclass(frozen=True)
class Given:
    """The folder of answers that a model is held against: ``sha256`` is what the report says of its index.

    ``export`` is what the report says of the model's file. ``trouble`` says why there are no answers.
    """

    folder: Path
    sha256: str
    export: ExportInfo | None = None
    trouble: str = ""
