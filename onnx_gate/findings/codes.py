"""What every finding's code is, as data, and the only way to raise one.

The text of each, with its title, is in ``texts``; a test holds both to be of the same codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.findings.finding import ErrorKind, Finding, Placed, Severity


@dataclass(frozen=True)
class Code:
    """One code: how it may appear, and what its appearance means.

    ``severities`` are those of its findings, the usual one first, ``kinds`` those of its errors.
    ``advice``: it speaks of inputs that nobody promised anything about, and is shown folded.
    ``about_file``: it speaks of a file or a runtime, so no line of the model's is to blame.
    ``load_failure``: the runtime refuses the file itself, whatever the inputs.
    """

    code: str
    severities: tuple[Severity, ...] = ()
    kinds: tuple[ErrorKind, ...] = ()
    advice: bool = False
    about_file: bool = False
    load_failure: bool = False

    def __str__(self) -> str:
        return self.code

    def finding(
        self,
        message: str,
        *,
        severity: Severity | None = None,
        at: Placed | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Finding:
        """Return a finding of this code; ``data`` is what later stations need of the message."""
        chosen = severity or self.severities[0]
        if chosen not in self.severities:
            raise ValueError(f"{self.code} is never a finding of severity {chosen}")
        return Finding(
            code=self.code,
            severity=chosen,
            message=message,
            file=None if at is None else at.file,
            line=None if at is None else at.line,
            data=dict(data or {}),
        )

    def error(
        self,
        message: str,
        *,
        kind: ErrorKind | None = None,
        source: tuple[str, int] | None = None,
        remedy: str = "",
        changes: tuple[tuple[str, object], ...] = (),
        line: int | None = None,
        otherwise: str = "",
    ) -> GateError:
        """Return the exception that leaves a model without a verdict of its own."""
        chosen = kind or self.kinds[0]
        if chosen not in self.kinds:
            raise ValueError(f"{self.code} is never an error of kind {chosen}")
        return GateError(chosen, self.code, message, source, remedy, changes, line, otherwise)

    def among(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings that have this code."""
        return (finding for finding in findings if finding.code == self.code)


def code_of(name: str) -> Code:
    """Return what a code is; one that this version does not know is nothing special."""
    return ALL.get(name) or Code(name)


# The model and its graph.
OG101 = Code("OG101", ("warning", "note"))
OG102 = Code("OG102", ("error", "note"))
OG103 = Code("OG103", ("warning",))
OG104 = Code("OG104", kinds=("build",))
OG105 = Code("OG105", kinds=("build",))
OG106 = Code("OG106", kinds=("unverified",))
OG107 = Code("OG107", kinds=("unverified",))
OG108 = Code("OG108", kinds=("unverified",))
OG109 = Code("OG109", ("warning",))
OG110 = Code("OG110", ("warning",))
OG111 = Code("OG111", ("warning",))
OG112 = Code("OG112", ("warning",), kinds=("inspect",))
OG113 = Code("OG113", ("error", "note"))
OG114 = Code("OG114", ("error", "warning", "note"))
OG115 = Code("OG115", ("error", "note"), kinds=("unverified",))
OG116 = Code("OG116", ("warning", "error", "note"))
OG117 = Code("OG117", ("warning",), kinds=("inspect",))
OG118 = Code("OG118", ("error",), kinds=("export",))
OG119 = Code("OG119", ("note",))
OG120 = Code("OG120", ("warning",))
OG121 = Code("OG121", ("error", "note"))
OG122 = Code("OG122", ("note",), about_file=True)
OG124 = Code("OG124", ("warning", "note"))
OG125 = Code("OG125", ("note",), about_file=True)
OG126 = Code("OG126", ("warning", "note"))
OG127 = Code("OG127", kinds=("build",))
OG128 = Code("OG128", kinds=("build",))
OG130 = Code("OG130", kinds=("build",))

# Building and exporting.
OG201 = Code("OG201", kinds=("export",))
OG202 = Code("OG202", kinds=("runtime",), load_failure=True)
OG203 = Code("OG203", kinds=("export",))
OG204 = Code("OG204", kinds=("build",))
OG205 = Code("OG205", kinds=("build",))
OG206 = Code("OG206", kinds=("export",))
OG207 = Code("OG207", kinds=("export",))
OG208 = Code("OG208", kinds=("export", "inspect"))
OG209 = Code("OG209", kinds=("export",))
OG210 = Code("OG210", kinds=("export",))
OG211 = Code("OG211", kinds=("export",))
OG214 = Code("OG214", ("warning",), about_file=True)


# Runtimes.
OG301 = Code("OG301", kinds=("runtime",))
OG302 = Code("OG302", kinds=("runtime",))
OG303 = Code("OG303", kinds=("runtime",), load_failure=True)
OG304 = Code("OG304", ("note",))
OG305 = Code("OG305", ("note",), about_file=True)
OG306 = Code("OG306", ("note",), about_file=True)
OG307 = Code("OG307", ("error",), about_file=True)
OG309 = Code("OG309", ("note",), about_file=True)
OG310 = Code("OG310", kinds=("crashed",))
OG320 = Code("OG320", ("note",), about_file=True)
OG321 = Code("OG321", kinds=("crashed",))
OG326 = Code("OG326", ("note",))

# Verdicts.
OG401 = Code("OG401", ("warning",))
OG402 = Code("OG402", ("error",), kinds=("unverified",))
OG403 = Code("OG403", ("warning",), advice=True)
OG404 = Code("OG404", ("warning", "note"))
OG405 = Code("OG405", kinds=("unverified",))
OG406 = Code("OG406", ("note",), advice=True)
OG407 = Code("OG407", ("warning",))
OG408 = Code("OG408", ("warning",))
OG409 = Code("OG409", ("warning", "note"))
OG410 = Code("OG410", kinds=("unverified",))
OG411 = Code("OG411", ("note",))
OG412 = Code("OG412", kinds=("unverified",))
OG413 = Code("OG413", ("warning",))
OG414 = Code("OG414", ("note",))
OG415 = Code("OG415", ("note", "warning", "error"), about_file=True)
OG416 = Code("OG416", ("warning",))
OG417 = Code("OG417", ("error", "warning"))
OG418 = Code("OG418", ("warning",))
OG419 = Code("OG419", ("warning",))
OG420 = Code("OG420", ("warning", "note"), about_file=True)
OG421 = Code("OG421", ("warning",))
OG422 = Code("OG422", ("error",))
OG430 = Code("OG430", ("note", "warning"))
OG431 = Code("OG431", kinds=("unverified",))
OG432 = Code("OG432", ("error", "note"))
OG433 = Code("OG433", ("note",))
OG434 = Code("OG434", kinds=("unverified",))

# Workers.
OG501 = Code("OG501", kinds=("crashed",))
OG502 = Code("OG502", kinds=("timeout",))
OG503 = Code("OG503", kinds=("memory",))
OG504 = Code("OG504", kinds=("crashed",))
OG505 = Code("OG505", kinds=("crashed",))
OG506 = Code("OG506", kinds=("unverified",))
OG507 = Code("OG507", kinds=("crashed",))

# Waivers.
OG601 = Code("OG601", ("warning",))
OG602 = Code("OG602", ("note",))

# Audits.
OG603 = Code("OG603", kinds=("unverified",))

# What usually is behind a divergence at one operator.
OG701 = Code("OG701", ("note",))
OG702 = Code("OG702", ("note",))
OG703 = Code("OG703", ("note",))
OG704 = Code("OG704", ("note",))
OG705 = Code("OG705", ("note",))
OG706 = Code("OG706", ("note",))
OG707 = Code("OG707", ("note",))
OG708 = Code("OG708", ("note",))
OG709 = Code("OG709", ("note",))
OG710 = Code("OG710", ("note",))
OG711 = Code("OG711", ("note",))
OG712 = Code("OG712", ("note",))
OG713 = Code("OG713", ("note",))
OG714 = Code("OG714", ("note",))
OG715 = Code("OG715", ("note",))
OG716 = Code("OG716", ("note",))
OG717 = Code("OG717", ("note",))
OG718 = Code("OG718", ("note",))

ALL: Mapping[str, Code] = {
    value.code: value for value in list(globals().values()) if isinstance(value, Code)
}
