"""A remedy before it is tried: plain data, which a worker applies to a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx_gate.manifest.change import KeyChange, of_input
from onnx_gate.report.model.remedy import RemedyKind


@dataclass(frozen=True)
class Candidate:
    """What a remedy changes.

    ``changes`` are of the model's entry; with ``texts``, they are further inputs. ``texts`` has whole
    new texts of source files by their paths, relative to the manifest's folder, and ``rewrite`` the
    pattern that they come from. ``fresh``: the committed ONNX file is exported anew. ``evidence``:
    it is no remedy, as it takes what is shipped from what is verified, and says of the owner's script
    that the module can be exported otherwise.
    """

    kind: RemedyKind
    changes: tuple[KeyChange, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    rewrite: str = ""
    fresh: bool = False
    evidence: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """The buffers of the model that are inputs and outputs of the rewritten one."""
        return tuple(of_input(each.key)[0] for each in self.changes) if self.texts else ()


@dataclass(frozen=True)
class Ladder:
    """What is tried for one model, in this order, for so many ``seconds``."""

    candidates: tuple[Candidate, ...]
    seconds: float
