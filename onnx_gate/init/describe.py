"""What ``onnx-gate init`` prints: what it learned, what it guessed, and what it could not know."""

from __future__ import annotations

from onnx_gate.init.facts import Learned, Note
from onnx_gate.init.manifest_text import inputs
from onnx_gate.report.model import Report
from onnx_gate.text import counted

_HEADINGS = {"learned": "learned", "guessed": "guessed", "unknown": "could not know"}


def lines(learned: Learned, calls: int) -> list[str]:
    """Return what is known of the inputs, and from where."""
    seen = f", after {counted(calls, 'recorded call')}" if calls else ""
    begin = f"{learned.name}, by {counted(learned.tries, 'call')} of forward{seen}:"
    shown = ["", begin, *(f"  {line}" for line in inputs(learned))]
    notes = [*learned.notes, *_requirements(learned)]
    for kind, heading in _HEADINGS.items():
        texts = [note.text for note in notes if note.kind == kind]
        shown += [f"{heading}:", *(f"  - {text}" for text in texts)] if texts else []
    return [*shown, ""]


def _requirements(learned: Learned) -> list[Note]:
    if not learned.packages:
        return []
    shown = ", ".join(learned.packages)
    return [
        Note(
            "unknown",
            f"which version of {shown} you use: list it in the file that requirements: names",
        )
    ]


def after(report: Report, name: str, manifest: str) -> list[str]:
    """Return what to do next, by the verdict."""
    if report.verdict == "pass":
        return ["", f"next: read {manifest}, name the weights, and commit it"]
    return [
        "",
        f"{name} is in {manifest} and did not pass; what is above is about the model, or about a "
        "guess: correct it there, then onnx-gate run",
    ]
